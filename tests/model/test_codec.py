"""The JSON of runs and comparisons: what goes in comes back, and nothing else gets in."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from situations import SITUATIONS

from perfci.errors import MeasurementError
from perfci.model import codec
from perfci.model.comparison import Comparison, Effect, Reason, Row, Side, WorkloadComparison
from perfci.model.environment import ENVIRONMENT_FIELDS, Environment
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.metrics import METRICS, Kind, Unit
from perfci.model.run import ApiCallStat, KernelStat, Launch, Note, Revision, Run, Series
from perfci.model.verdict import Verdict

# Any text that UTF-8 can hold, empty or not.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
counts = st.integers(0, 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def some_series(draw: st.DrawFn) -> Series:
    metric = draw(st.sampled_from(sorted(METRICS)))
    floats = METRICS[metric].unit in (Unit.RATIO, Unit.PER_SECOND)
    number = st.one_of(st.integers(0, 9), st.floats(0, 1e300)) if floats else st.integers(0, 2**80)
    return Series(phase=draw(names), metric=metric, values=tuple(draw(st.lists(number, min_size=1, max_size=4))))


series_lists = st.lists(some_series(), max_size=4, unique_by=lambda s: (s.phase, s.metric)).map(tuple)
notes = st.lists(st.builds(Note, code=texts, text=texts, spoils=st.booleans()), max_size=2).map(tuple)
environments = st.dictionaries(st.sampled_from([*ENVIRONMENT_FIELDS, "user.rack"]), names, max_size=4).map(
    Environment.of
)
revisions = st.builds(Revision, label=names, commit=st.none() | texts, tree=st.none() | texts, dirty=st.booleans())
findings = st.lists(
    st.builds(
        Finding,
        rule=texts,
        phase=texts,
        title=texts,
        evidence=st.lists(st.builds(Quantity, name=texts, value=finite, unit=texts), max_size=2).map(tuple),
        confidence=st.sampled_from(Confidence),
        advice=texts,
        location=st.none() | st.builds(SourceLocation, path=texts, line=counts),
    ),
    max_size=2,
).map(tuple)
launches = st.builds(
    Launch,
    started_at=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])),
    duration_ns=counts,
    schedule=texts,
    pair=counts,
    position=counts,
    seed=st.none() | st.integers(),
)
kernels = st.lists(st.builds(KernelStat, phase=texts, name=texts, count=counts, total_ns=counts), max_size=2).map(tuple)
api_calls = st.lists(st.builds(ApiCallStat, phase=texts, name=texts, count=counts, total_ns=counts), max_size=2).map(
    tuple
)
runs = st.builds(
    Run,
    workload=names,
    revision=revisions,
    environment=environments,
    launch=launches,
    step_count=counts,
    series=series_lists,
    kernels=kernels,
    api_calls=api_calls,
    findings=findings,
    losses=st.lists(finite, max_size=3).map(tuple),
    notes=notes,
    artifacts=st.lists(texts, max_size=2).map(tuple),
)


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    low, value, high = sorted(draw(st.tuples(finite, finite, finite)))
    return Effect(
        value_ratio=value,
        low_ratio=draw(st.sampled_from([low, -math.inf])),
        high_ratio=draw(st.sampled_from([high, math.inf])),
        confidence=draw(st.floats(0, 1, exclude_min=True)),
    )


def sides() -> st.SearchStrategy[Side]:
    return st.lists(finite, min_size=1, max_size=3).map(lambda x: Side(samples=tuple(x), location=x[0])) | st.just(
        Side()
    )


rows = st.builds(
    lambda verdict, **rest: Row(verdict=verdict, gated=verdict is not None, **rest),
    verdict=st.none() | st.sampled_from(Verdict),
    phase=texts,
    metric=st.sampled_from(sorted(METRICS)),
    kind=st.sampled_from(Kind),
    baseline=sides(),
    candidate=sides(),
    effect=st.none() | effects(),
    reason=st.sampled_from(Reason),
    mde_ratio=st.none() | finite,
    launches_needed=st.none() | counts,
    flags=st.lists(texts, max_size=2).map(tuple),
)
comparisons = st.builds(
    Comparison,
    baseline=revisions,
    candidate=revisions,
    error_rate=finite,
    notes=notes,
    workloads=st.lists(
        st.builds(
            WorkloadComparison,
            workload=names,
            rows=st.lists(rows, max_size=2).map(tuple),
            baseline_environment=environments,
            candidate_environment=environments,
            baseline_launches=counts,
            candidate_launches=counts,
            findings=findings,
        ),
        max_size=2,
    ).map(tuple),
)


def through_text(document: codec.Document) -> codec.Document:
    return json.loads(codec.canonical_json(document))


@settings(max_examples=60, deadline=None)
@given(runs)
def test_a_run_comes_back_equal_by_value_and_by_address(run: Run) -> None:
    back = codec.run_from_document(through_text(codec.run_to_document(run)))
    assert back == run
    assert [type(v) for s in back.series for v in s.values] == [type(v) for s in run.series for v in s.values]
    assert codec.run_id(back) == codec.run_id(run)
    assert codec.run_to_document(back) == codec.run_to_document(run)


@settings(max_examples=40, deadline=None)
@given(comparisons)
def test_a_comparison_comes_back_equal(comparison: Comparison) -> None:
    document = codec.comparison_to_document(comparison)
    before = deepcopy(document)
    assert codec.comparison_from_document(through_text(document)) == comparison
    codec.comparison_from_document(document)
    assert document == before  # decoding leaves the caller's document alone


@pytest.mark.parametrize("name", sorted(SITUATIONS.keys() - {"hostile"}))
def test_every_situation_comes_back_equal(name: str) -> None:
    comparison = SITUATIONS[name]()
    assert codec.comparison_from_document(through_text(codec.comparison_to_document(comparison))) == comparison


def small_run() -> Run:
    return Run(
        workload="gpt",
        revision=Revision(label="main", commit="a" * 40),
        environment=Environment.of({"gpu_model": "H200"}),
        launch=Launch(started_at=datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC), duration_ns=5),
        step_count=2,
        series=(Series(phase="step", metric="wall_ns", values=(1, 2)),),
        losses=(1.5,),
    )


def test_the_document_of_a_run_is_what_the_documentation_says() -> None:
    assert codec.run_to_document(small_run()) == {
        "schema_version": 1,
        "workload": "gpt",
        "revision": {"label": "main", "commit": "a" * 40, "tree": None, "dirty": False},
        "environment": {"entries": [["gpu_model", "H200"]]},
        "launch": {
            "started_at": "2025-03-14T09:26:53Z",
            "duration_ns": 5,
            "schedule": "",
            "pair": 0,
            "position": 0,
            "seed": None,
            "plan": None,
            "session": None,
        },
        "step_count": 2,
        "series": [{"phase": "step", "metric": "wall_ns", "values": [1, 2]}],
        "kernels": [],
        "api_calls": [],
        "findings": [],
        "losses": [1.5],
        "notes": [],
        "artifacts": [],
    }


def test_the_address_of_a_run_does_not_change_between_versions() -> None:
    # A stored run must be found again: when this fails, runs imported before would be stored a second time.
    assert codec.run_id(small_run()) == "47e99a964ba923a274060e9974a5efc65a69b7b4ba5b33d8e5f338c35cae9b1e"


def change(path: str, value: object):
    def apply(document: codec.Document) -> None:
        *way, last = path.split(".")
        at = document
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = value

    return apply


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (change("extra", 1), "extra"),
        (change("launch.extra", 1), "launch.extra"),
        (change("series.0.extra", None), "series.0.extra"),
        (lambda d: d.pop("workload"), "workload"),
        (lambda d: d["launch"].pop("duration_ns"), "launch.duration_ns"),
        (change("step_count", 2.0), "step_count"),
        (change("step_count", True), "step_count"),
        (change("step_count", "2"), "step_count"),
        (change("step_count", -1), "not be negative"),
        (change("workload", ""), "needs a workload"),
        (change("workload", None), "workload"),
        (change("revision.dirty", 0), "revision.dirty"),
        (change("series.0.values", []), "no values"),
        (change("series.0.values", [1.0]), "must be an integer"),
        (change("series.0.values", [True]), "series.0.values"),
        (change("series.0.values", [-1]), "negative"),
        (change("series.0.values", ["1"]), "series.0.values"),
        (change("series.0.metric", "nonsense"), "unknown metric"),
        (change("series", {}), "series"),
        (change("series", "abc"), "series"),
        (change("launch.started_at", "2025-03-14T09:26:53"), "time zone"),
        (change("launch.started_at", 1741944413), "started_at"),
        (change("launch.started_at", "yesterday"), "started_at"),
        (change("environment.entries", [["zzz", "1"]]), "unknown environment field"),
        (change("environment.entries", [["cuda"]]), "environment.entries"),
        (change("losses", [float("nan")]), "JSON"),
        (change("losses", [float("inf")]), "JSON"),
        (change("losses", ["Infinity"]), "losses"),
        (change("notes", [{"code": "\ud800", "text": "x"}]), "JSON"),
        (change("schema_version", 2), "schema version 2"),
        (change("schema_version", True), "schema version"),
        (change("schema_version", "1"), "schema version"),
        (lambda d: d.pop("schema_version"), "schema version"),
        (change("findings", [{"rule": "x"}]), "findings.0"),
        (change("low_ratio", "Infinity"), "low_ratio"),
    ],
)
def test_a_faulty_document_is_refused_and_named(edit, where: str) -> None:
    document = codec.run_to_document(small_run())
    edit(document)
    with pytest.raises(codec.CodecError) as caught:
        codec.run_from_document(document)
    assert where in str(caught.value)
    assert isinstance(caught.value, MeasurementError)


@pytest.mark.parametrize("document", [None, [], "x", 1, {}, {"schema_version": 1}])
def test_what_is_no_document_is_refused(document) -> None:
    for decode in (codec.run_from_document, codec.comparison_from_document):
        with pytest.raises(codec.CodecError):
            decode(document)


def test_a_series_of_numbers_that_are_not_finite_is_refused_when_written() -> None:
    for loss in (math.nan, math.inf):
        with pytest.raises(codec.CodecError):
            codec.run_to_document(replace(small_run(), losses=(loss,)))


def test_canonical_json_is_one_spelling() -> None:
    assert codec.canonical_json({"b": [1, 1.0], "a": "é"}) == '{"a":"é","b":[1,1.0]}'.encode()
    assert codec.canonical_json({"a": "é", "b": [1, 1.0]}) == codec.canonical_json({"b": [1, 1.0], "a": "é"})


def test_the_key_hash_knows_only_the_key() -> None:
    h200 = Environment.of({"gpu_model": "H200", "temperature_c": "60"})
    warm = Environment.of({"gpu_model": "H200", "temperature_c": "80"})
    racked = Environment.of({"gpu_model": "H200", "user.rack": "7"})
    assert codec.key_hash(h200) == codec.key_hash(warm)
    assert len({codec.key_hash(e) for e in (h200, racked, Environment())}) == 3
