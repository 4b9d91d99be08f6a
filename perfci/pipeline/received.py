"""Bundles as the publisher gets them: read as hostile input, held against the event, sorted into what is compared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from perfci.bundle import (
    Bundle,
    BundleError,
    ExpectedIdentity,
    Failure,
    merge_bundles,
    read_bundle,
    verify_identity,
)
from perfci.model.environment import Environment
from perfci.model.run import Note, Run
from perfci.pipeline.sides import choose_runs

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one workload on one kind of machine: what is judged together. ``label`` is how it is called: the
    workload's name, with the machine where several kinds measured it."""

    workload: str
    label: str
    baseline: tuple[Run, ...]
    candidate: tuple[Run, ...]
    notes: tuple[Note, ...] = ()


def receive(paths: Sequence[Path], expected: ExpectedIdentity, *, now: datetime) -> Bundle:
    """The one bundle of a measuring run. BundleError when any file is not what GitHub says was measured."""
    bundle = merge_bundles(without_superseded_failures([read_bundle(path, now=now) for path in paths]))
    verify_identity(bundle, expected)
    if bundle.identity.base_sha == bundle.identity.head_sha:
        raise BundleError("the bundle compares the head commit with itself", wanted="another commit as the base")
    return bundle


def without_superseded_failures(bundles: Sequence[Bundle]) -> list[Bundle]:
    """When failed jobs are run again, GitHub keeps the artifacts of all attempts: a failure counts only when no later
    attempt has measured that workload without one."""
    healed: dict[str, int] = {}
    for bundle in bundles:
        failed = {failure.workload for failure in bundle.failures}
        for name in {run.workload for run in bundle.runs} - failed:
            healed[name] = max(healed.get(name, 0), bundle.identity.run_attempt)

    def stands(failure: Failure, attempt: int) -> bool:
        return healed.get(failure.workload, 0) <= attempt

    return [
        replace(bundle, failures=tuple(f for f in bundle.failures if stands(f, bundle.identity.run_attempt)))
        for bundle in bundles
    ]


def groups_of_sides(workload: str, baseline: Sequence[Run], candidate: Sequence[Run]) -> tuple[Group, ...]:
    """Both sides of a workload, one group for each comparability key that both have. What is left (a machine that
    measured one side only, sides whose environments differ) is one more group: it must not be overlooked."""
    common = [key for key in _keys(candidate) if key in set(_keys(baseline))]
    parts = []
    for key in common:
        chosen = choose_runs(_of(baseline, key), _of(candidate, key))
        parts.append((key, chosen.baseline, chosen.candidate, chosen.notes))
    left = tuple(run for run in baseline if run.environment.key not in common)
    right = tuple(run for run in candidate if run.environment.key not in common)
    if left or right:
        parts.append(((right or left)[0].environment.key, left, right, ()))
    labels = _labels(workload, [key for key, _, _, _ in parts])
    return tuple(
        Group(workload=workload, label=label, baseline=before, candidate=after, notes=notes)
        for label, (_, before, after, notes) in zip(labels, parts, strict=True)
    )


def groups_of_candidate(workload: str, candidate: Sequence[Run]) -> tuple[Group, ...]:
    """A side that was measured alone: one group for each kind of machine, its baseline still to be found."""
    keys = _keys(candidate)
    return tuple(
        Group(workload=workload, label=label, baseline=(), candidate=tuple(_of(candidate, key)))
        for label, key in zip(_labels(workload, keys), keys, strict=True)
    )


def by_workload(runs: Iterable[Run], commit: str | None) -> dict[str, tuple[Run, ...]]:
    """Runs of a commit by workload, in order of their start."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.launch.started_at, run.launch.position)):
        if commit is not None and run.revision.commit == commit:
            found.setdefault(run.workload, []).append(run)
    return {name: tuple(mine) for name, mine in found.items()}


def failure_notes(failures: Iterable[Failure]) -> dict[str, tuple[Note, ...]]:
    """What failed, by workload."""
    notes: dict[str, tuple[Note, ...]] = {}
    for failure in failures:
        note = Note(code="launch-failed", text=failure.text)
        notes[failure.workload] = (*notes.get(failure.workload, ()), note)
    return notes


def _keys(runs: Sequence[Run]) -> list[Key]:
    return list(dict.fromkeys(run.environment.key for run in runs))


def _of(runs: Sequence[Run], key: Key) -> list[Run]:
    return [run for run in runs if run.environment.key == key]


def _labels(workload: str, keys: Sequence[Key]) -> list[str]:
    """Names that tell the groups of a workload apart: the workload alone, or with what differs between the keys."""
    if len(keys) < 2:
        return [workload] * len(keys)
    fields = sorted({name for key in keys for name, value in key if any(dict(k).get(name) != value for k in keys)})
    if "gpu_model" in fields and len({dict(key).get("gpu_model") for key in keys}) == len(keys):
        fields = ["gpu_model"]
    known = [[value for name in fields if (value := Environment(entries=key).get(name))] for key in keys]
    labels = [f"{workload} on {', '.join(values) or 'another machine'}" for values in known]
    return [label if labels.count(label) == 1 else f"{label} ({n})" for n, label in enumerate(labels, start=1)]
