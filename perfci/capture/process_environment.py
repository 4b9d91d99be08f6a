"""The environment of the measured process: an allow-list, because a profile records every variable it sees."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

ALLOWED = (
    *("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHON*"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "CUBLASLT_*", "NVIDIA_*", "NVTE_*", "NCCL_*", "GLOO_*", "UCX_*"),
    *("TORCH*", "PYTORCH_*", "TRITON_*", "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_*", "TOKENIZERS_PARALLELISM"),
    *("OMP_*", "MKL_*", "KMP_*", "GOMP_*", "OPENBLAS_*", "NUMEXPR_*", "MALLOC_*", "ATEN_*", "DNNL_*", "ONEDNN_*"),
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    *("NSYS_*", "CC", "CXX"),
)
"""Names and patterns that pass; a user's list is added to them."""

_SECRET = ("TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL")
_NEVER = ("GITHUB_*", "ACTIONS_*", "RUNNER_*", "PERFCI_*")
_HARMLESS = frozenset({"TOKENIZERS_PARALLELISM"})


def is_secret(name: str) -> bool:
    """Whether a variable never passes, whatever list names it: it looks like a secret, belongs to the CI runner, or is
    perfci's own."""
    upper = name.upper()
    if upper in _HARMLESS:
        return False
    return any(word in upper for word in _SECRET) or any(fnmatchcase(upper, pattern) for pattern in _NEVER)


def child_environment(parent: Mapping[str, str], *, allow: Sequence[str] = ()) -> dict[str, str]:
    """The part of ``parent`` that the measured process may see. ``allow`` adds names or patterns (``WANDB_*``)."""
    patterns = (*ALLOWED, *allow)
    return {
        name: value
        for name, value in parent.items()
        if not is_secret(name) and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
