"""What kinds of CUDA calls there are, by name."""

import re

import numpy as np

from perfci.model.timeline import Bool, Int32, Int64, SyncKind, UInt8

_WAITS: tuple[tuple[re.Pattern[str], SyncKind], ...] = (
    (re.compile(r"cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize"), SyncKind.DEVICE),
    (re.compile(r"cudaStreamSynchronize|cuStreamSynchronize"), SyncKind.STREAM),
    (re.compile(r"cudaEventSynchronize|cuEventSynchronize"), SyncKind.EVENT),
    (re.compile(r"(?:cudaMemcpy|cuMemcpy)(?!\w*Async)\w*"), SyncKind.COPY),
)
_ALLOCATES = re.compile(
    r"cuda(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap)\w*"
)
_LAUNCHES_GRAPH = re.compile(r"(?:cudaGraphLaunch|cuGraphLaunch)\w*")
_LAUNCHES_WORK = re.compile(r"(?:cuda|cu)(?:Launch(?:Cooperative)?Kernel|Memcpy|Memset|GraphLaunch)\w*")
_POLLS = re.compile(r"(?:cuda|cu)(?:Event|Stream)Query")


def polls(name: str) -> bool:
    """True for calls that only ask whether the GPU is done: how often depends on timing, not on the program."""
    return _POLLS.fullmatch(name) is not None


def wait_of(name: str) -> SyncKind:
    """How a call of that name waits for the GPU whatever its arguments are. Names without ABI suffix."""
    return next((kind for pattern, kind in _WAITS if pattern.fullmatch(name)), SyncKind.NONE)


def allocates(name: str) -> bool:
    """True for calls that take or give back device or pinned memory, from the driver or from a pool."""
    return _ALLOCATES.fullmatch(name) is not None


def launches_work(name: str) -> bool:
    """True for calls after which the GPU has something to do."""
    return _LAUNCHES_WORK.fullmatch(name) is not None


def launches_graph(name: str) -> bool:
    """True for calls that launch a CUDA graph."""
    return _LAUNCHES_GRAPH.fullmatch(name) is not None


def sync_kinds(
    *, wait_by_name: UInt8, name: Int32, start_ns: Int64, end_ns: Int64, thread: Int32, copies_waiting: Int64
) -> UInt8:
    """SyncKind of each call. ``copies_waiting`` are rows whose asynchronous copy has to wait all the same: device to
    pageable host memory. A waiting call inside another waiting call of its thread is part of that one: NONE."""
    kind = wait_by_name[name] if len(name) else np.empty(0, dtype=np.uint8)
    kind[copies_waiting] = np.where(kind[copies_waiting] == SyncKind.NONE, int(SyncKind.COPY), kind[copies_waiting])
    rows = np.flatnonzero(kind)
    rows = rows[np.lexsort((-end_ns[rows], start_ns[rows], thread[rows]))]
    kind[rows[_inside_earlier(start_ns[rows], end_ns[rows], thread[rows])]] = int(SyncKind.NONE)
    return kind


def _inside_earlier(start: Int64, end: Int64, thread: Int32) -> Bool:
    inside = np.zeros(len(start), dtype=np.bool_)
    for one in np.unique(thread):
        rows = np.flatnonzero(thread == one)
        reached = np.maximum.accumulate(end[rows])
        inside[rows[1:]] = end[rows][1:] <= reached[:-1]
    return inside
