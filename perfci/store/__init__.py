"""The database: SQLAlchemy tables, Alembic migrations, and the one file that holds perfci's own SQL (``store.py``)."""
