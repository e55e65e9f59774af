"""Migrations of the served predictions' tables, by alembic."""
