"""Which nsys is taken, and what is said when none can be."""

import os
from pathlib import Path

import pytest

from perfci.capture import nsys as nsys_module
from perfci.capture.nsys import find_nsys, parse_options, parse_version
from perfci.errors import MeasurementError


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f\n", "2022.4.2.1"),
        ("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0", "2025.3.2.474"),
        ("warning: no display\nNVIDIA Nsight Systems version 2023.4.1\n", "2023.4.1"),
        ("bash: nsys: command not found", None),
        ("", None),
    ],
)
def test_versions(output, version):
    assert parse_version(output) == version


def test_options_are_read_from_the_help():
    text = "  -c, --capture-range=\n\n    ...\n --nvtx-domain-[include|exclude]=\n\t--wait=\n -- not an option"
    assert {"capture-range", "wait"} <= parse_options(text)


def fake(folder, version, *, mode=0o755):
    """A program that answers as nsys does: what discovery asks is only its words."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{version}' || echo '  --capture-range='\n")
    path.chmod(mode)
    return path


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFCI_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(nsys_module, "_USUAL_PLACES", (str(tmp_path / "opt/*/bin/nsys"),))
    monkeypatch.setattr(nsys_module, "__file__", str(tmp_path / "clone/perfci/capture/nsys.py"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_order_of_places(nowhere, monkeypatch):
    with pytest.raises(MeasurementError, match="nsys is not installed") as caught:
        find_nsys()
    assert "install-nsys.sh" in caught.value.todo
    places = []
    for place, version in [
        (nowhere / "clone/.nsys/x/target-linux-x64", "2022.1.1"),
        (nowhere / "opt/2023.9.1/bin", "2023.9.1"),
        (nowhere / "opt/2023.10.1/bin", "2023.10.1"),
        (nowhere / "bin", "2024.1.1"),
    ]:
        places.append(fake(place, f"NVIDIA Nsight Systems version {version}-x"))
        assert find_nsys().version == version
    monkeypatch.setenv("PERFCI_NSYS", str(places[0]))
    assert find_nsys().version == "2022.1.1"
    assert find_nsys(places[1]).version == "2023.9.1"
    assert find_nsys(places[1]).release > find_nsys().release
    assert find_nsys().options == {"capture-range"}


def test_one_that_does_not_work_is_passed_over_unless_it_was_named(nowhere, monkeypatch):
    broken = fake(nowhere / "bin", "segmentation fault")
    with pytest.raises(MeasurementError, match="does not tell its version; it said: segmentation fault"):
        find_nsys()
    fake(nowhere / "opt/2023.9.1/bin", "NVIDIA Nsight Systems version 2023.9.1")
    assert find_nsys().version == "2023.9.1"
    monkeypatch.setenv("PERFCI_NSYS", str(broken))
    with pytest.raises(MeasurementError, match="does not tell its version"):
        find_nsys()


def test_a_named_one_that_is_missing_or_forbidden(nowhere):
    with pytest.raises(MeasurementError, match="no nsys at"):
        find_nsys(nowhere / "no" / "nsys")
    forbidden = fake(nowhere / "locked", "x", mode=0o644)
    with pytest.raises(MeasurementError, match="must not be executed by this user"):
        find_nsys(forbidden)


@pytest.mark.nsys
def test_the_real_one(nsys):
    assert os.access(nsys.path, os.X_OK)
    assert nsys.release >= (2021, 5)
    assert {"trace", "sample", "cpuctxsw", "capture-range", "capture-range-end", "nvtx-capture"} <= nsys.options
    assert isinstance(nsys.path, Path)
