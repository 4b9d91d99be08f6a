"""The job matrix of a workflow: one job per workload and GPU label."""

import json
import re
from collections.abc import Iterable

from perfci.errors import UsageError

MAX_JOBS = 256
"""GitHub's limit of jobs that one matrix may make."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def github_matrix(workloads: Iterable[str], gpu_labels: Iterable[str]) -> str:
    """The value of ``strategy.matrix`` as one line of JSON: ``{"include":[{"workload":…,"gpu":…},…]}``.

    Order follows the arguments, doubles are dropped, so equal input gives equal output. Names become parts of runner
    labels, file names and concurrency groups, so anything but letters, digits, ``.``, ``_`` and ``-`` is refused.
    With no workload the list is empty,
    on which GitHub *fails* the job: guard it with ``if: needs.plan.outputs.count != '0'``. UsageError past 256 jobs.
    """
    names, labels = tuple(dict.fromkeys(workloads)), tuple(dict.fromkeys(gpu_labels))
    for text in (*names, *labels):
        if not _LABEL.fullmatch(text):
            raise UsageError(f"{text!r} cannot be used in a job matrix", wanted="letters, digits, '.', '_' and '-'")
    if not labels:
        raise UsageError("no GPU label for the matrix", todo="give the label of your runners, for example h200")
    include = [{"workload": workload, "gpu": label} for workload in names for label in labels]
    if len(include) > MAX_JOBS:
        raise UsageError(
            f"{len(names)} workloads on {len(labels)} GPU labels are {len(include)} jobs",
            wanted=f"at most {MAX_JOBS}, the limit of GitHub",
            todo="select workloads by tag",
        )
    return json.dumps({"include": include}, separators=(",", ":"))
