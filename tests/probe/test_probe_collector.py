"""Real scripts under the probe, on the CPU: reads that would wait for a GPU are found at the user's lines."""

import json
import sys
import warnings
from collections import Counter

import pytest

from perfci.model.finding import Confidence, Finding, Quantity
from perfci.phases.collectors import CaptureError, open_collector
from perfci.phases.plan import plan_from
from perfci.probe.attach import attach_locations
from perfci.probe.locations import LocationKind, read_locations

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from perfci.probe.collector import Probe  # noqa: E402  (needs torch)

READS = """\
import functools
import torch
from perfci import phases
from tool.log import scalar

def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        loss = function(*args)
        wrapper.last = loss.item()  # decorator
        return loss
    return wrapper

@logged
def forward(model, x):
    with phases.phase("forward"):
        if model(x).sum() > 1e9:  # bool
            raise SystemExit
        return model(x).square().mean()

reads = [lambda t: t.tolist() if t.item() else t, lambda t: float(t.detach())]  # lambdas
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index, x in enumerate(phases.loop([torch.ones(2, 4) for _ in range(20)])):
    loss = forward(model, x)
    with phases.phase("backward"):
        loss.backward()
    with phases.phase("optimizer"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with phases.phase("log"):
        print(loss)  # print
        for read in reads:
            read(loss)
        with phases.phase("inner"):
            scalar(loss)
        if index % 2 == 0:
            x[x > 0].nonzero()  # mask and nonzero
    loss.item()  # outside of every phase
loss.item()  # outside of every step
"""


@pytest.fixture(scope="module")
def reads(probed_once):
    probed_once.write("tool/__init__.py", "")
    probed_once.write("tool/log.py", "def scalar(t):\n    return f'{t:.3f}'\n")
    return probed_once.run(READS)


def waits(locations):
    return {
        (x.path, x.text, x.phases): x.count_per_step
        for x in sorted(locations, key=lambda x: x.line)
        if x.kind == "sync"
    }


def line_of(marker):
    return next(n for n, line in enumerate(READS.splitlines(), 1) if marker in line)


def test_each_read_is_found_at_its_line_in_its_phase(reads):
    found = waits(reads)
    by_text = {text.partition("  #")[0]: (path, phases) for path, text, phases in found}
    assert by_text == {
        "wrapper.last = loss.item()": ("train.py", ()),
        "if model(x).sum() > 1e9:": ("train.py", ("forward",)),
        "reads = [lambda t: t.tolist() if t.item() else t, lambda t: float(t.detach())]": ("train.py", ("log",)),
        "print(loss)": ("train.py", ("log",)),
        "return f'{t:.3f}'": ("tool/log.py", ("inner", "log")),
        "x[x > 0].nonzero()": ("train.py", ("log",)),
        "loss.item()": ("train.py", ()),
    }


def test_counts_are_per_step(reads):
    by_line = Counter()
    for x in reads:
        if x.kind is LocationKind.SYNC:
            by_line[x.line] += x.count_per_step
    assert by_line[line_of("# decorator")] == 1
    assert by_line[line_of("# bool")] == 1
    assert by_line[line_of("# lambdas")] == 2
    assert by_line[line_of("# mask")] == 1  # two in every second step
    assert by_line[line_of("outside of every phase")] == 1
    assert by_line[line_of("# print")] >= 1
    ratios = {x.line: x.steps_ratio for x in reads if x.kind is LocationKind.SYNC}
    assert ratios[line_of("# mask")] == 0.5
    assert ratios[line_of("# decorator")] == 1


def test_functions_are_named(reads):
    names = {x.line: x.function for x in reads if x.kind is LocationKind.SYNC and x.path == "train.py"}
    qualified = sys.version_info >= (3, 11)
    assert names[line_of("# decorator")] == ("logged.<locals>.wrapper" if qualified else "wrapper")
    assert names[line_of("# lambdas")] == "<lambda>"
    assert names[line_of("# print")] == "<module>"


def test_operators_of_libraries_are_charged_to_the_line_that_called_them(reads):
    by_text = {}
    for x in reads:
        if x.kind is LocationKind.OPERATOR:
            by_text.setdefault((x.text, x.phases), Counter())[x.name] += x.count_per_step
    assert by_text["return model(x).square().mean()", ("forward",)]["aten::addmm"] == 1
    assert by_text["loss.backward()", ("backward",)]["aten::mm"] == 1
    assert by_text["optimizer.step()", ("optimizer",)]["aten::add_"] == 2  # weight and bias
    assert by_text["torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", ("optimizer",)]


def test_losses_and_random_numbers_are_the_same_with_and_without_the_probe(probed):
    script = """
        import torch
        from perfci import phases
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(), torch.nn.TransformerEncoderLayer(64, 2),
                                    torch.nn.LSTM(64, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in phases.loop(range(20)):
            x = torch.randn(3, 2, 4)
            loss = model(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            phases.log_loss(loss)
    """
    probed.run(script, steps=6)
    with_probe = json.loads((probed.folder / "sidecar.json").read_text())["losses"]
    (probed.folder / "off").mkdir()
    off = str(probed.folder / "off" / "sidecar.json")
    probed.run(script, PERFCI_CAPTURE="off", PERFCI_SIDECAR=off, PERFCI_WALL_STEPS="6")  # reads the file of before
    without = json.loads((probed.folder / "off" / "sidecar.json").read_text())["losses"]
    assert len(with_probe) == 7
    assert with_probe == without


def test_copies_between_host_and_device(probed):
    """A `meta` tensor stands in for the device to copy to, a fake CUDA tensor for one to copy from."""
    locations = probed.run("""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from perfci import phases
        with FakeTensorMode():
            loss = torch.empty(512, device="cuda")
        for _ in phases.loop(range(9)):
            with phases.phase("h2d"):
                torch.ones(256).to("meta", non_blocking=True)
                torch.empty(16, device="meta").copy_(torch.ones(16))
                torch.ones(256).to(torch.float64)  # no copy between two devices
            with phases.phase("log"):
                loss.cpu()
    """)
    copies = {
        (x.kind, x.name, x.text.partition("  #")[0]): (x.count_per_step, x.bytes_per_step)
        for x in locations
        if x.kind in (LocationKind.PAGEABLE_COPY, LocationKind.COPY)
    }
    to_device = "torch.ones(256).to('meta', non_blocking=True)".replace("'", '"')
    blocking = 'torch.empty(16, device="meta").copy_(torch.ones(16))'
    assert copies == {
        ("pageable-copy", "host to device", to_device): (1, 1024),
        ("pageable-copy", "host to device", blocking): (1, 64),
        ("pageable-copy", "device to host", "loss.cpu()"): (1, 2048),
    }
    assert {text for _, text, _ in waits(locations)} == {blocking, "loss.cpu()"}  # the non-blocking one does not wait


def test_code_without_a_file_in_the_checkout_has_no_place(probed):
    (probed.folder / "elsewhere.py").write_text("def read(t):\n    return t.item()\n")
    probed.write("venv/lib/python3/site-packages/lib.py", "def read(t):\n    return t.item()\n")
    locations = probed.run("""
        import sys, torch
        sys.path += ["..", "venv/lib/python3/site-packages"]
        import elsewhere, lib
        from perfci import phases
        import threading
        for _ in phases.loop(range(9)):
            t = torch.ones(())
            with phases.phase("a"):
                lib.read(t)
            with phases.phase("b"):
                exec("t.item()")
            with phases.phase("c"):
                exec(compile("t.item()", "<a name>", "exec"))
            worker = threading.Thread(target=t.item)  # another thread is not the training thread
            worker.start()
            worker.join()
    """)
    assert {(text, phases) for _, text, phases in waits(locations)} == {
        ("lib.read(t)", ("a",)),
        ('exec("t.item()")', ("b",)),
        ('exec(compile("t.item()", "<a name>", "exec"))', ("c",)),
    }


def test_no_user_frame_at_all(probed):
    (probed.folder / "framework.py").write_text("""
import torch
from perfci import phases
for _ in phases.loop(range(9)):
    torch.ones(()).item()
""")
    locations = probed.run(
        "import runpy; runpy.run_path('../framework.py')"
    )  # the checkout's only line is on the stack
    assert {text for _, text, _ in waits(locations)} == {"import runpy; runpy.run_path('../framework.py')"}
    locations = probed.run(
        "import runpy; runpy.run_path('../framework.py')", PERFCI_PROBE_ROOT=str(probed.folder / "nowhere")
    )
    assert {(x.path, x.line, x.function) for x in locations} == {(None, 0, "")}


def test_an_error_of_the_script_is_its_own(probed):
    with pytest.raises(AssertionError, match=r"(?s)train.py.*line 6.*ZeroDivisionError"):
        probed.run(
            """
            import torch
            from perfci import phases
            for index in phases.loop(range(9)):
                if index == 3:
                    1 / 0
                torch.ones(()).item()
        """,
            own_process=True,
        )


def test_a_mode_that_the_script_leaves_open_is_not_closed_for_it(probed, capsys):
    probed.run("""
        from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
        from torch.utils.flop_counter import FlopCounterMode
        from perfci import phases
        import torch
        mode = FlopCounterMode(display=False)
        for index in phases.loop(range(9)):
            if index == 2:
                mode.__enter__()
            torch.ones(2, 2) @ torch.ones(2, 2)
        mode.__exit__(None, None, None)
        print(mode.get_total_flops())
    """)
    assert capsys.readouterr().out.strip() == "48"  # three steps of 16, all that ran inside


def test_compiled_code_runs_on(probed):
    """torch.compile with a backend that needs no compiler: under the probe the function runs as it is written."""
    locations = probed.run("""
        import torch
        from perfci import phases
        @torch.compile(backend="aot_eager")
        def f(x):
            return x.sin() + 1  # inside
        for index in phases.loop(range(9)):
            x = torch.ones(3, requires_grad=True)
            f(x).sum().backward()
    """)
    assert {x.text for x in locations if x.name == "aten::sin"} == {"return x.sin() + 1  # inside"}


def test_findings_get_the_line(reads):
    finding = Finding(
        rule="accidental-sync",
        phase="forward",
        title="",
        evidence=(Quantity(name="x", value=1, unit="ns"),),
        confidence=Confidence.HIGH,
        advice="",
        subject="cudaStreamSynchronize",
    )
    (located,) = attach_locations([finding], reads)
    assert (located.location.path, located.location.line) == ("train.py", line_of("# bool"))


@pytest.fixture
def as_if_on_gpu(monkeypatch, tmp_path):
    """A probe that takes this process for one with a GPU; torch's switch for warnings is a list of its settings."""
    modes = [0]
    monkeypatch.setenv("PERFCI_PROBE_ROOT", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: "waited", raising=False)
    return Probe(str(tmp_path / "out.json")), modes


def run_in_step(probe, tmp_path, text):
    path = tmp_path / "user.py"
    path.write_text(text)
    probe.start()
    probe.marks.open("step")
    try:
        exec(compile(text, str(path), "exec"), {"torch": torch, "warnings": warnings, "C": torch._C})
    finally:
        probe.marks.close("step")
        probe.stop()
    probe.save()
    return read_locations([tmp_path / "out.json"], tmp_path)


def test_on_a_gpu_the_warnings_of_torch_and_the_waits_it_does_not_know_are_noted(as_if_on_gpu, tmp_path, monkeypatch):
    probe, modes = as_if_on_gpu
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    before = warnings.showwarning, torch._C._cuda_synchronize, torch._tensor_str._str, warnings.filters[:]
    locations = run_in_step(
        probe,
        tmp_path,
        "t = torch.ones(())\n"
        "for _ in range(3): t.nonzero(), warnings.warn('called a synchronizing CUDA operation (Triggered …)')\n"
        "t.item()\n"  # a CPU tensor: no warning, no wait
        "assert C._cuda_synchronize() == 'waited'\n"
        "warnings.warn('something else')\n",
    )
    assert [(x.line, x.name, x.count_per_step) for x in locations if x.kind == "sync"] == [
        (2, "aten::nonzero", 3),
        (4, "torch.cuda.synchronize", 1),
    ]
    assert shown == ["something else"]
    assert modes == [0, "warn", 0]
    assert before == (warnings.showwarning, torch._C._cuda_synchronize, torch._tensor_str._str, warnings.filters[:])
    assert "synchronize" in vars(torch.cuda.Event)
    assert not hasattr(torch.cuda.Event.synchronize, "__wrapped__")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_real_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFCI_PROBE_ROOT", str(tmp_path))
    torch.ones(1, device="cuda")
    locations = run_in_step(
        Probe(str(tmp_path / "out.json")),
        tmp_path,
        "t = torch.ones(100000, device='cuda')\n"
        "t[0].item()\n"
        "t.cpu()\n"
        "torch.ones(100000).to('cuda', non_blocking=True)\n"
        "torch.ones(100000).pin_memory().to('cuda', non_blocking=True)\n"
        "torch.cuda.synchronize()\n"
        "torch.cuda.Event().synchronize()\n"
        "print(t)\n"
        "t + t\n",
    )
    assert {x.line for x in locations if x.kind == "sync"} == {2, 3, 6, 7, 8}
    assert {(x.line, x.name) for x in locations if x.kind == "pageable-copy" and x.line < 8} == {
        (3, "device to host"),
        (4, "host to device"),
    }
    assert {(x.line, x.name) for x in locations if x.kind == "copy"} == {(5, "host to device")}


def test_collectors_of_others(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFCI_PROBE_ROOT", raising=False)
    with pytest.raises(CaptureError, match="PERFCI_PROBE_ROOT is not set"):
        open_collector("perfci.probe.collector:Probe", torch_trace=str(tmp_path / "x.json"))
    for name in ("perfci.no_such:Probe", "perfci.probe.collector:Nothing"):
        with pytest.raises(CaptureError, match="cannot be loaded"):
            open_collector(name, torch_trace=str(tmp_path / "x.json"))


def test_a_collector_of_others_needs_a_file_to_write(tmp_path):
    environment = {"PERFCI_SIDECAR": str(tmp_path / "s.json"), "PERFCI_CAPTURE": "some.module:Collector"}
    with pytest.raises(ValueError, match="needs PERFCI_TORCH_TRACE"):
        plan_from(environment)
    assert plan_from(environment | {"PERFCI_TORCH_TRACE": "t.json"}).collector == "some.module:Collector"
