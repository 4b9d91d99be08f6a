import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.config.load import CONFIG_NAME, load_project

ROOT = Path(__file__).parents[2]


class Zygote:
    """See zygote.py."""

    def __init__(self):
        env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env | {"OMP_NUM_THREADS": "1"},
        )
        self._process.stdout.readline()

    def run(self, argv, *, cwd, log, env=None):
        job = {"argv": [str(x) for x in argv], "cwd": str(cwd), "env": env or {}, "log": str(log)}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, log.read_text(errors="replace")

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)


@pytest.fixture(scope="session")
def zygote():
    found = Zygote()
    yield found
    found.close()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the canonical workloads with a perfci.yaml, as a user's repository has them."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "workloads", folder / "workloads", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / CONFIG_NAME).write_text("version: 1\nworkloads: ['workloads/*']\n")
    return folder


@pytest.fixture(scope="session")
def project(checkout):
    return load_project(checkout / CONFIG_NAME)
