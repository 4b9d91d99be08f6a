"""The installer of nsys: idempotent, and one clear line where it cannot work. (Every CI run is its full test.)"""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-nsys.sh"


@pytest.fixture
def install(tmp_path):
    """Run the script with only the named programs on PATH."""

    def run(*arguments, programs, environment=()):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name in programs:
            found = shutil.which(name)
            if found:
                (folder / name).symlink_to(found)
        return subprocess.run(
            ["/bin/sh", SCRIPT, *arguments],
            env={"PATH": str(folder), **dict(environment)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_without_apt_it_says_so_in_one_line(install, tmp_path):
    done = install(str(tmp_path / "nsys"), programs=["dirname", "uname", "awk", "ldd"])
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("nsys not installed: ")
    assert "Do: " in done.stderr
    assert not (tmp_path / "nsys").exists()


def test_one_that_works_is_kept(install, tmp_path):
    fake = tmp_path / "nsys"
    fake.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2025.1.1\n")
    fake.chmod(0o755)
    done = install(programs=["dirname", "tail"], environment={"PERFCI_NSYS": str(fake)})
    assert done.returncode == 0
    assert str(fake) in done.stdout
    assert "2025.1.1" in done.stdout


def test_one_that_does_not_work_is_not_kept(install, tmp_path):
    fake = tmp_path / "nsys"
    fake.write_text("#!/bin/sh\nexit 127\n")
    fake.chmod(0o755)
    done = install(
        str(tmp_path / "empty"), programs=["dirname", "uname", "awk", "ldd"], environment={"PERFCI_NSYS": str(fake)}
    )
    assert done.returncode == 1


@pytest.mark.nsys
def test_the_installed_one_is_found_again(install, nsys):
    if ".nsys" not in nsys.path.parts:
        pytest.skip(f"the nsys in use was not installed by the script: {nsys.path}")
    done = install(str(nsys.path.parents[2]), programs=["dirname"])
    assert done.returncode == 0
    assert done.stdout.startswith("nsys is there: ")
