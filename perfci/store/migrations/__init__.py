"""Alembic migrations, run by `perfci.store.schema` when a database is opened."""
