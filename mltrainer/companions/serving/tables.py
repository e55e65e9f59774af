"""The tables in which predictions and their later labels are kept; `migrations` makes them."""

from __future__ import annotations

from sqlalchemy import JSON, Column, DateTime, ForeignKeyConstraint, Integer, MetaData, String, Table

METADATA = MetaData()
# A prefix and a separate version table: the database may hold other programs' tables and migrations.
VERSION_TABLE = "served_version"
PREDICTIONS = Table(
    "served_predictions",
    METADATA,
    Column("id", String(32), primary_key=True),  # the answer's id
    Column("row", Integer, primary_key=True),  # the row's index in the request, from 0
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("weights_sha256", String(64), nullable=True, index=True),
    Column("checks", String(16), nullable=False),
    Column("answer", JSON, nullable=False),
    Column("input", JSON(none_as_null=True), nullable=True),  # the row as it was sent, with --store
)
LABELS = Table(
    "served_labels",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("row", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("label", JSON, nullable=False),
    ForeignKeyConstraint(["id", "row"], ["served_predictions.id", "served_predictions.row"], ondelete="CASCADE"),
)
