"""Bundles from an enemy: each ends in a BundleError, quickly, in bounded memory, with nothing written anywhere."""

import contextlib
import copy
import gzip
import hashlib
import io
import json
import os
import stat
import struct
import time
import tracemalloc
import zipfile
import zlib

import pytest
from bundle_cases import document, pack, run, write, zipped
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfci.bundle import BundleError, BundleLimits, parse_bundle, read_bundle
from perfci.bundle.container import documents_in

MIB = 1024 * 1024


def refused(path, match=None, **kwargs):
    with pytest.raises(BundleError, match=match) as caught:
        read_bundle(path, **kwargs)
    return caught.value


# containers


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.json.gz",
        "/etc/cron.d/x",
        "a/b.json",
        "..",
        "C:\\x",
        "a\\..\\b",
        "x\x00y",
        "-rf",
        "dir/",
        "é.json",
    ],
)
def test_names_that_are_paths_are_refused_and_nothing_is_unpacked(tmp_path, name):
    good = write(tmp_path / "good.gz").read_bytes()
    path = tmp_path / "in" / "a.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), good)
    before = sorted(p for p in tmp_path.rglob("*"))
    if name == "x\x00y":
        path.write_bytes(path.read_bytes().replace(b"x", b"x\x00y"))
    refused(path)
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_an_entry_without_a_name_is_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", {"x": write(tmp_path / "g.gz").read_bytes()})
    data = bytearray(path.read_bytes())
    lengths = data.index(b"PK\x01\x02") + 28
    data[lengths : lengths + 4] = struct.pack("<2H", 0, 1)  # the one byte of the name is an extra field now
    path.write_bytes(bytes(data))
    refused(path, "holds ''")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR, stat.S_IFSOCK])
def test_links_and_devices_in_an_archive_are_refused(tmp_path, kind):
    info = zipfile.ZipInfo("perfci-x.json.gz")
    info.external_attr = (kind | 0o777) << 16
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    refused(path, "plain files")


def test_a_link_a_folder_and_a_pipe_instead_of_a_bundle_are_refused(tmp_path):
    good = write(tmp_path / "good.gz")
    link = tmp_path / "link.gz"
    link.symlink_to(good)
    refused(link, "regular file")
    refused(tmp_path, "regular file")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pipe, "regular file")
    refused(tmp_path / "missing", "cannot open")


def bomb(size):
    stream = zlib.compressobj(9, wbits=31)
    data = [stream.compress(b" " * MIB) for _ in range(size // MIB)]
    return b"".join([*data, stream.flush()])


def bounded(path, match, *, peak_bytes, limits=None):
    tracemalloc.start()
    started = time.monotonic()
    refused(path, match, **({"limits": limits} if limits else {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < peak_bytes
    assert time.monotonic() - started < 20


def test_a_gzip_bomb_costs_no_more_than_the_limit(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(192 * MIB))
    assert path.stat().st_size < 3 * MIB
    bounded(path, "too large", peak_bytes=150 * MIB)


def test_a_zip_bomb_with_a_lying_size_costs_no_more_than_the_limit(tmp_path):
    path = zipped(tmp_path / "a.zip", {"perfci-x.json": b" " * (150 * MIB)})
    data = path.read_bytes().replace(struct.pack("<L", 150 * MIB), struct.pack("<L", 10))
    path.write_bytes(data)
    bounded(path, None, peak_bytes=150 * MIB)


def test_bombs_inside_many_members_share_one_limit(tmp_path):
    member = bomb(20 * MIB)
    path = zipped(tmp_path / "a.zip", {f"perfci-{i}.json.gz": member for i in range(10)})
    bounded(path, "too large", peak_bytes=150 * MIB)


def test_a_million_entries_are_not_even_listed(tmp_path):
    record = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    count = 600_000
    head = b"PK\x03\x04" + b"\0" * 26
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, count * len(record), len(head), 0)
    path = tmp_path / "many.zip"
    path.write_bytes(head + record * count + end)
    bounded(path, "too many entries", peak_bytes=80 * MIB)
    honest_count = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, count * len(record), len(head), 0)
    path.write_bytes(head + record * count + honest_count)
    bounded(path, "too many entries", peak_bytes=80 * MIB)


def test_entries_hidden_behind_a_zip64_record_are_counted(tmp_path):
    record = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    body = b"PK\x03\x04" + b"\0" * 26 + record * 100_000
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 20, 20, 0, 0, 100_000, 100_000, len(record) * 100_000, 30)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, 30, 0)
    path = tmp_path / "z64.zip"
    path.write_bytes(body + end64 + locator + end)
    bounded(path, "too many entries", peak_bytes=60 * MIB)


@pytest.mark.parametrize("flag", ["comment", "encrypted", "unknown compression"])
def test_odd_archives_are_refused(tmp_path, flag):
    path = zipped(tmp_path / "a.zip", {"perfci-x.json.gz": write(tmp_path / "g.gz").read_bytes()})
    data = bytearray(path.read_bytes())
    if flag == "comment":
        data = data[:-2] + struct.pack("<H", 4) + b"PK\x05\x06"
    else:
        for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            where = data.index(signature) + at + (0 if flag == "encrypted" else 2)
            data[where : where + 2] = struct.pack("<H", 1 if flag == "encrypted" else 97)
    path.write_bytes(bytes(data))
    refused(path)


def test_cut_damaged_padded_and_foreign_files_are_refused(tmp_path):
    good = write(tmp_path / "g.gz").read_bytes()
    path = tmp_path / "b.gz"
    for data, match in (
        (b"", "neither"),
        (b"SQLite format 3\0", "neither"),
        (good[: len(good) // 2], "cut off"),
        (good[:-4], "cut off"),
        (good + b"more", "after its end"),
        (good + good, "after its end"),
        (good[:40] + b"\xff\xff\xff" + good[43:], None),
        (gzip.compress(b"[]"), "not a JSON object"),
        (gzip.compress(b"{}"), "not a bundle"),
    ):
        path.write_bytes(data)
        refused(path, match)


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "b.gz"
    with path.open("wb") as file:
        file.truncate(10**12)
    refused(path, "too large")


# documents


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", str(2**63), "1" + "0" * 5000])
def test_numbers_that_are_none_or_too_large_are_refused(tmp_path, number):
    text = json.dumps(document(tmp_path)).replace("43000000", number, 1)
    refused(pack(tmp_path / "b.gz", text.encode()))


def test_deep_wide_long_and_double_documents_are_refused(tmp_path):
    honest = json.dumps(document(tmp_path))
    for text, match in (
        ("[" * 200_000, "deep"),
        ('{"a":' * 200_000, "deep"),
        ('{"x":' + "[" * 30 + "]" * 30 + "}", "deep"),
        ('{"x":[' + "1," * 5_000_000 + "1]}", "too many values"),
        ('{"x":"' + "a" * 20_000 + '"}', "text of"),
        ('{"' + "a" * 20_000 + '":1}', "text of"),
        ('{"x":"\\u0000"}', "NUL"),
        ('{"x":"\\ud800"}', "half"),
        ('{"x":1,"x":2}', "twice"),
        (honest.replace('"format"', '"format": "x", "format"', 1), "twice"),
        (honest[:-1], "not valid JSON"),
        ("\ufeff" + honest, "not valid JSON"),
    ):
        refused(pack(tmp_path / "b.gz", text.encode()), match)
    refused(pack(tmp_path / "b.gz", b'{"x":"\xff"}'), "not valid JSON")


def change(path, value):
    """A function that sets one place of a document."""

    def apply(target):
        *way, last = path
        for key in way:
            target = target[key]
        target[last] = value

    return apply


SERIES = ("runs", 0, "series")
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
IMPOSSIBLE = {
    "negative time": (change((*SERIES, 0, "values"), [-1, 1, 1]), "step/wall_ns: -1 is negative"),
    "text as time": (change((*SERIES, 0, "values"), ["1", 1, 1]), "valid integer"),
    "float as time": (change((*SERIES, 0, "values"), [1.5, 1, 1]), r"1.5 must be an integer"),
    "true as time": (change((*SERIES, 0, "values"), [True, 1, 1]), "valid integer"),
    "no values": (change((*SERIES, 0, "values"), []), "no values"),
    "values for other steps": (change((*SERIES, 0, "values"), [43_000_000] * 4), "4 values for 3 steps"),
    "wall above launch": (change((*SERIES, 0, "values"), [10**13] * 3), "step/wall_ns adds up to more"),
    "busy above launch": (change((*SERIES, 1, "values"), [10**13] * 3), "step/gpu_busy_ns adds up to more"),
    "kernels above wall times streams": (change((*SERIES, 2, "values"), [2 * 10**10] * 3), "more than 128 streams"),
    "ratio above one": (change((*SERIES, 4, "values"), [1.5] * 3), "overlap_ratio is above 1"),
    "several values of one number": (change((*SERIES, 5, "values"), [1, 2]), "2 values instead of one"),
    "count beyond reason": (change((*SERIES, 3, "values"), [10**15] * 3), "more than any step can do"),
    "unprofiled above launch": (change((*SERIES, 6, "values"), [10**12] * 5), "unprofiled_wall_ns adds up to more"),
    "unknown metric": (change((*SERIES, 0, "metric"), "speed"), "unknown metric 'speed'"),
    "no phase": (change((*SERIES, 0, "phase"), ""), "a series needs a phase"),
    "twice the same series": (change((*SERIES, 1, "metric"), "wall_ns"), r"metric. once"),
    "unknown key": (change(("runs", 0, "extra"), 1), "extra"),
    "negative steps": (change(("runs", 0, "step_count"), -1), "step_count must not be negative"),
    "negative launch": (change(("runs", 0, "launch", "duration_ns"), -1), "launch numbers must not be negative"),
    "no time zone": (change(("runs", 0, "launch", "started_at"), "2026-03-01T12:00:00"), "must carry a time zone"),
    "endless plan": (change(("runs", 0, "launch", "plan"), [1, 10_001]), "more than 10,000 launches .* implausible"),
    "plan beyond numbers": (change(("runs", 0, "launch", "plan"), [1, 10**12]), "implausible"),
    "late session": (change(("runs", 0, "launch", "session"), 10**12), "more than 1,000,000 sessions"),
    "year-long launch": (change(("runs", 0, "launch", "duration_ns"), 365 * 86400 * 10**9), "more than a week"),
    "kernel count": (change(("runs", 0, "kernels", 0, "count"), 0), "with count 0"),
    "kernel time": (change(("runs", 0, "kernels", 0, "total_ns"), -5), "-5 ns"),
    "kernel time above launch": (change(("runs", 0, "kernels", 0, "total_ns"), 10**15), "longer than the launch"),
    "api count": (change(("runs", 0, "api_calls", 0, "count"), -1), "with count -1"),
    "unsorted environment": (
        change(("runs", 0, "environment", "entries"), [["torch", "2"], ["cuda", "12"]]),
        "must be sorted",
    ),
    "unknown environment": (
        change(("runs", 0, "environment", "entries"), [["password", "x"]]),
        "unknown environment field 'password'",
    ),
    "location outside": (
        change(("runs", 0, "findings", 0, "location", "path"), "../../etc/passwd"),
        "outside the repository",
    ),
    "location absolute": (
        change(("runs", 0, "findings", 0, "location", "path"), "/etc/passwd"),
        "outside the repository",
    ),
    "location line": (change(("runs", 0, "findings", 0, "location", "line"), 0), "outside the repository"),
    "artifact paths": (change(("runs", 0, "artifacts"), ["../../secrets"]), "names files of the machine"),
    "run is no object": (change(("runs", 0), 7), "not a JSON object"),
    "runs are no list": (change(("runs",), {}), "not a list of at most 1000"),
    "too many runs": (change(("runs",), [1] * 1001), "not a list of at most 1000"),
    "identity without run": (change(("identity",), {"repository": "octo/train"}), r"missing keys: .*'run_id'"),
    "identity with more": (change(("identity", "extra"), 1), r"keys: \['extra'\]"),
    "identity number as text": (change(("identity", "run_id"), "500"), "run_id has the wrong type"),
    "identity true": (change(("identity", "run_attempt"), True), "run_attempt has the wrong type"),
    "short commit": (change(("identity", "head_sha"), "abc"), "'abc' is not a full commit"),
    "commit with newline": (change(("identity", "head_sha"), "a" * 40 + "\n"), "not a full commit"),
    "repository path": (change(("identity", "repository"), "../../x"), r"'../../x' is not owner/name"),
    "pull request 0": (change(("identity", "pull_request"), 0), "must be positive"),
    "failure without text": (
        change(("failures",), [{"workload": "x", "commit": None, "text": ""}]),
        "a workload and a text",
    ),
    "failure as number": (change(("failures",), [7]), r"failures\[0\] is not valid \(not a JSON object"),
    "file as path": (
        change(("files",), [{"name": "../x", "sha256": EMPTY_SHA256, "base64": ""}]),
        r"'../x' is not a plain file name",
    ),
    "file with wrong hash": (
        change(("files",), [{"name": "x", "sha256": "0" * 64, "base64": "eA=="}]),
        "does not match its hash",
    ),
    "file not base64": (change(("files",), [{"name": "x", "sha256": "0" * 64, "base64": "!!"}]), "not base64"),
    "version as true": (change(("schema_version",), True), "schema version True"),
    "version as text": (change(("schema_version",), "1"), "schema version '1'"),
    "other format": (change(("format",), "zip"), "not a bundle of perfci"),
    "extra key": (change(("note",), "hello"), "'note'"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_honest_run_can_be_is_refused(tmp_path, name):
    spoiled = document(tmp_path)
    spoil, told = IMPOSSIBLE[name]
    spoil(spoiled)
    refused(pack(tmp_path / "b.gz", spoiled), told)


def test_what_is_merely_unusual_is_let_through(tmp_path):
    honest = document(tmp_path)
    for apply in (
        change((*SERIES, 2, "values"), [4 * 43_000_000] * 3),  # four streams at once
        change((*SERIES, 1, "values"), [44_000_000, 0, 43_000_000]),  # work of one step that ends in the next
        change(("runs", 0, "losses"), []),
        change(("identity", "base_sha"), None),
    ):
        unusual = copy.deepcopy(honest)
        apply(unusual)
        read_bundle(pack(tmp_path / "b.gz", unusual))


HONEST = {}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_any_place_ends_in_a_bundle_or_a_bundle_error(tmp_path, data):
    """Walk to a random place of an honest document and put anything there."""
    if not HONEST:
        HONEST.update(document(tmp_path))
    spoiled = copy.deepcopy(HONEST)
    place = spoiled
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        )
    )
    with contextlib.suppress(BundleError):
        parse_bundle(json.dumps(spoiled).encode())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), archive=st.booleans())
def test_any_flipped_byte_ends_in_a_bundle_or_a_bundle_error(tmp_path, position, value, archive):
    path = write(tmp_path / "b.gz")
    if archive:
        path = zipped(tmp_path / "a.zip", {"perfci-x.json.gz": path.read_bytes()})
    damaged = bytearray(path.read_bytes())
    damaged[position % len(damaged)] = value
    path.write_bytes(bytes(damaged))
    with contextlib.suppress(BundleError):
        read_bundle(path)


def test_limits_bound_a_zip_made_in_memory():
    limits = BundleLimits(zip_entries=2)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for i in range(3):
            archive.writestr(f"perfci-{i}.json", b"{}")
    with pytest.raises(BundleError, match="too many entries"):
        documents_in(data.getvalue(), limits)


def test_the_honest_bundle_is_small(tmp_path):
    path = write(tmp_path / "b.gz", *[run(position=i) for i in range(24)])
    assert path.stat().st_size < 20_000
