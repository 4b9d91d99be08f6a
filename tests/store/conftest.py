"""Both databases for the tests of the store: SQLite always, a private PostgreSQL where its programs are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

_numbers = count()


def _server_programs() -> Path | None:
    on_path = shutil.which("pg_ctl")
    found = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(found) if (folder / "initdb").exists()), None)


def _owner() -> str | None:
    """The server refuses to run as root; its package makes a user for it."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return ""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Folder of the socket of a private server. It listens on no network address."""
    programs = _server_programs()
    if programs is None:
        pytest.skip("the programs of a PostgreSQL server are not installed")
    owner = _owner()
    if owner == "":
        pytest.skip("as root a PostgreSQL server needs a user `postgres`")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)  # short: a socket's path may have 107 characters
        if owner:
            shutil.chown(folder, owner)

        def server(program: str, *arguments: str | Path) -> None:
            command = [programs / program, "-D", folder / "data", *arguments]
            subprocess.run(command, user=owner, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=60)

        server("initdb", "-U", "perfci", "--auth=trust", "-E", "UTF8", "--no-sync")
        settings = f"-F -c listen_addresses= -c unix_socket_directories={folder}"
        server("pg_ctl", "-w", "-s", "-l", folder / "log", "-o", settings, "start")
        try:
            yield str(folder)
        finally:
            server("pg_ctl", "-w", "-s", "-m", "immediate", "stop")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/perfci.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of an empty database of the private server."""
    name = f"perfci{next(_numbers)}"
    with psycopg.connect(host=postgres_server, user="perfci", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://perfci@/{name}?host={postgres_server}"
