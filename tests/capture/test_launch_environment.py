"""What of the runner's environment reaches the measured process: an allow-list that secrets never pass."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.launch import _search_path
from perfci.capture.process_environment import child_environment, is_secret

KEPT = "HOME PATH LANG LC_ALL CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NCCL_DEBUG TORCH_LOGS PYTORCH_CUDA_ALLOC_CONF"
KEPT += (
    " TORCHINDUCTOR_CACHE_DIR PYTHONPATH OMP_NUM_THREADS MASTER_ADDR LD_LIBRARY_PATH VIRTUAL_ENV TOKENIZERS_PARALLELISM"
)
SECRET = "GITHUB_TOKEN ACTIONS_RUNTIME_URL HF_TOKEN WANDB_API_KEY PYTHON_KEYRING_BACKEND TORCH_SECRET NCCL_PASSWORD"
SECRET += " GITHUB_SHA CUDA_AUTH_TOKEN omp_secret AWS_SECRET_ACCESS_KEY PERFCI_SIDECAR"


@pytest.mark.parametrize("name", KEPT.split())
def test_what_training_needs_passes(name):
    assert child_environment({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", SECRET.split())
def test_secrets_never_pass_whatever_list_names_them(name):
    assert child_environment({name: "1"}, allow=(name, "*", name[:4] + "*")) == {}
    assert is_secret(name)


def test_the_user_adds_names_and_patterns():
    parent = {"DATA_ROOT": "/d", "MY_A": "1", "MY_TOKEN": "t", "OTHER": "o"}
    assert child_environment(parent, allow=("DATA_ROOT", "MY_*")) == {"DATA_ROOT": "/d", "MY_A": "1"}


@given(
    st.dictionaries(st.text("ABCKEYTOKENSECRET_*[", min_size=1, max_size=12), st.text(max_size=5)),
    st.lists(st.text("ABCKEY_*[?", max_size=6), max_size=4),
)
def test_only_part_of_the_parent_and_no_secret(parent, allow):
    child = child_environment(parent, allow=tuple(allow))
    assert child.items() <= parent.items()
    assert not any(word in name for name in child for word in ("KEY", "TOKEN", "SECRET"))


def test_python_means_the_environment_perfci_lives_in_unless_another_is_activated():
    own = sys.prefix + "/bin"
    assert _search_path({"PATH": "/usr/bin", "VIRTUAL_ENV": "/v"}) == "/usr/bin"
    assert _search_path({"PATH": "/usr/bin", "CONDA_PREFIX": "/c"}) == "/usr/bin"
    if sys.prefix != sys.base_prefix:
        assert _search_path({"PATH": "/usr/bin"}) == f"{own}:/usr/bin"
