"""The database of a command that only reads: such a command makes none."""

from perfci.config.load import Project
from perfci.errors import BackendError
from perfci.store.engine import missing_file
from perfci.store.store import Store, open_store

NO_DATABASE = "sqlite://"
"""In memory and empty: what a command reads where nothing was stored yet."""


def open_to_read(project: Project) -> Store:
    """The project's database. Where its file does not exist yet: an empty one in memory, since nothing was stored
    here; BackendError when that file was named by --db or PERFCI_DATABASE_URL, which is a wrong name."""
    file = missing_file(project.database_url)
    if file is None:
        return open_store(project.database_url)
    if project.database_named:
        raise BackendError(
            f"there is no database {file}",
            wanted="a database with stored runs, since this command only reads",
            todo="mend --db or PERFCI_DATABASE_URL; perfci run, compare --measure and import make a new database",
        )
    return open_store(NO_DATABASE)
