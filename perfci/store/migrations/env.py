"""Alembic's entry: runs on the connection that ``perfci.store.schema`` hands over, inside its transaction."""

from alembic import context

from perfci.store.schema import VERSION_TABLE
from perfci.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
