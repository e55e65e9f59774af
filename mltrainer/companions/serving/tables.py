"""The tables in which predictions and their later labels are kept; `migrations` makes them."""

from __future__ import annotations

from sqlalchemy import JSON, Column, DateTime, ForeignKeyConstraint, Integer, MetaData, String, Table

METADATA = MetaData()
# Named so, and with a version table of their own: a database may hold other programs' tables, and those of their migrations.
VERSION_TABLE = "served_version"
PREDICTIONS = Table(
    "served_predictions",
    METADATA,
    Column("id", String(32), primary_key=True),  # of the answer
    Column("row", Integer, primary_key=True),  # its place in the request, from 0
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("weights_sha256", String(64), nullable=True, index=True),
    Column("checks", String(16), nullable=False),
    Column("answer", JSON, nullable=False),
    Column("input", JSON(none_as_null=True), nullable=True),  # the row as it was sent, where that is kept
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
