"""Names that stay equal when the program is built again: of kernels and of CUDA calls."""

import hashlib
import re

LONGEST_NAME = 480

_CASTS = re.compile(r"\((?:unsigned |signed )?(?:int|long long|long|short|char|__int128)\)(-?\d+)")
_BOOL_CASTS = re.compile(r"\(bool\)([01])")
_SUFFIXED_NUMBERS = re.compile(r"(?<![\w.])(\d+)(?:[uU][lL]{0,2}|[lL]{1,2}[uU]?)\b")
_ANONYMOUS = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}|_GLOBAL__N__\w+|\(anonymous\)")
_INTERNAL = re.compile(r"\b_INTERNAL_[0-9a-f]{8}_\w*::")
_NSYS_LAMBDA = re.compile(r"\[lambda\((?P<args>[^\[\]]*)\) \(instance (?P<n>\d+)\)\]")
_ITANIUM_LAMBDA = re.compile(r"\{lambda\((?P<args>[^{}]*)\)#(?P<n>\d+)\}")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![0-9A-Za-z])")
_TYPE_WORDS = re.compile(r"(?:tf32|bf16|e4m3|e5m2|e2m1|cf32|cf64|f16|f32|f64|f8|f4|[iusb]\d{1,2})+")
_TRITON_SIGNATURE = re.compile(r"_+(?:\d+(?:d[ce]*|c|e))+$")
_NUMBA_ABI = re.compile(r"B\d*v\d+B\d+c\w+?(?=E|$)|\$\d+")
_CALL_SUFFIX = re.compile(r"(?:_v\d+)?(?:_pt[sd][sz])?$")
_SPACES = re.compile(r"\s+")


def kernel_identity(name: str) -> str:
    """A kernel's name reduced to what a rebuild of the same source reproduces.

    Kept: function, namespaces, template arguments (they tell element types and functors apart), lambda numbers. Removed
    or unified: return type and parameters, the spelling of constants (``(int)4``, ``4u``), anonymous namespaces and
    internal linkage prefixes, addresses, hashes, Triton's signature suffix and Inductor's running number
    (``triton_poi_fused_add_3``). nsys and torch.profiler spell lambdas differently; both become one. Names longer than
    LONGEST_NAME are cut and end in a digest of the whole. Idempotent. Never empty.
    """
    text = _SPACES.sub(" ", name).strip()
    text = _ANONYMOUS.sub("(anonymous)", text)
    text = _INTERNAL.sub("", text)
    for form in (_NSYS_LAMBDA, _ITANIUM_LAMBDA):
        text = form.sub(lambda m: f"{{lambda#{m['n']}}}", text)
    text = _without_parameters(text)
    if text.startswith("triton"):
        text = _triton_identity(text)
    text = _CASTS.sub(r"\1", text)
    text = _BOOL_CASTS.sub(lambda m: "true" if m[1] == "1" else "false", text)
    text = _SUFFIXED_NUMBERS.sub(r"\1", text)
    text = _ADDRESS.sub("0x*", text)
    text = _HASH.sub(lambda m: m[0] if _TYPE_WORDS.fullmatch(m[0]) else "*", text)
    text = _NUMBA_ABI.sub("", text)
    text = text.strip() or name.strip() or "(no name)"
    if len(text) > LONGEST_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        text = f"{text[: LONGEST_NAME - 14]}…~{digest}"
    return text


def _triton_identity(text: str) -> str:
    text = _TRITON_SIGNATURE.sub("", text)
    return re.sub(r"_\d+$", "", text).rstrip("_") or "triton"


def _without_parameters(text: str) -> str:
    """Drop a trailing parameter list and the return type in front, both only where brackets balance."""
    if text.endswith(")"):
        depth = 0
        for at in range(len(text) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(text[at], 0)
            if depth == 0:
                if at > 0:
                    text = text[:at]
                break
    depth = 0
    cut = 0
    for at, letter in enumerate(text):
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]":
            depth -= 1
        elif letter == " " and depth == 0 and text[:at] in ("void", "static void"):
            cut = at + 1
    return text[cut:]


def call_identity(name: str) -> str:
    """A CUDA call's name without ABI suffixes: ``cudaLaunchKernel_v7000`` and ``cudaLaunchKernel_ptsz`` are the same
    call."""
    return _CALL_SUFFIX.sub("", name)


def is_nccl(name: str) -> bool:
    """True for kernels of NCCL (``ncclDevKernel_…``, ``ncclKernel_…``)."""
    return name.startswith(("ncclDevKernel", "ncclKernel", "ncclSymDevKernel", "ncclSymk"))
