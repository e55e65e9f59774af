"""Predictions with their input rows, and labels that come later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "served_predictions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("weights_sha256", sa.String(64), nullable=True),
        sa.Column("checks", sa.String(16), nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        sa.Column("input", sa.JSON, nullable=True),
    )
    op.create_index("ix_served_predictions_at", "served_predictions", ["at"])
    op.create_index("ix_served_predictions_weights_sha256", "served_predictions", ["weights_sha256"])
    op.create_table(
        "served_labels",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("label", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["id", "row"], ["served_predictions.id", "served_predictions.row"], ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("served_labels")
    op.drop_table("served_predictions")
