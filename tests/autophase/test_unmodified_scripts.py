"""Real scripts that say nothing of perfci, run as the runner runs them. A copy to the device ``meta`` leaves the CPU as
a copy to a GPU does."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import sys, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)

def data(count, size=4):
    return TensorDataset(torch.randn(count * size, 8), torch.randn(count * size, 1))

def net():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
"""
ROOT = Path(__file__).parents[2]
INJECT = ROOT / "perfci" / "autophase" / "inject"
PLAIN = ["data", "h2d", "forward", "backward", "optimizer"]
COMPLETE = {"warmup": 2, "wall": 3, "capture": 6}


def assert_measured(result, windows=COMPLETE):
    assert result.exit_code == 0, result.err
    assert result.sidecar["status"] == "complete", result.sidecar["reason"]
    assert result.window_steps() == windows
    assert "all steps are measured; the script is ended here" in result.err


def test_epochs_with_workers_validation_and_a_checkpoint(run_script):
    result = run_script(
        HEAD
        + """
training = DataLoader(data(4), batch_size=4, num_workers=1)
held_out = DataLoader(data(2), batch_size=4)
model, criterion = net(), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000):
    model.train()
    for x, y in training:
        x.to("meta"); y.to(device="meta"); x.to(torch.float64); x.to("cpu")
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    for x, y in held_out:
        x.to("meta")
        with torch.no_grad():
            criterion(model(x), y)
    print("epoch", epoch, flush=True)
"""
    )
    assert_measured(result)
    steps, outside = result.steps()
    assert steps == [["data", "h2d", "h2d", *PLAIN[2:]]] * 6
    assert "validation" in outside
    assert set(outside) == {"validation"}
    assert "epoch 999" not in result.out
    assert all(loss is not None for loss in result.sidecar["losses"])
    assert len(result.sidecar["losses"]) == 11


def test_gradient_accumulation_and_a_remainder_at_the_end_of_the_epoch(run_script):
    result = run_script(
        HEAD
        + """
training = DataLoader(data(7), batch_size=4)
model = net()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(1000):
    for i, (x, y) in enumerate(training):
        loss = F.mse_loss(model(x), y) / 3
        loss.backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
    )
    assert_measured(result)
    steps, _ = result.steps()
    assert steps == [["data", "forward", "backward"] * 3 + ["optimizer"]] * 6  # the seventh batch is in no step


def test_two_optimizers_without_a_loader(run_script):
    result = run_script(
        HEAD
        + """
generator, critic = nn.Linear(8, 8), net()
of_g, of_c = (torch.optim.Adam(m.parameters()) for m in (generator, critic))
while True:
    noise = torch.randn(4, 8)
    noise.to("meta")
    of_c.zero_grad()
    (critic(generator(noise).detach()).mean() - critic(torch.randn(4, 8)).mean()).backward()
    of_c.step()
    of_g.zero_grad()
    (-critic(generator(noise)).mean()).backward()
    of_g.step()
"""
    )
    assert_measured(result)
    steps, outside = result.steps()
    assert steps == [["h2d", "forward", "backward", "optimizer", "forward", "backward", "optimizer"]] * 6
    assert outside == []


def test_gradient_scaler_that_skips_steps(run_script):
    result = run_script(
        HEAD
        + """
training = DataLoader(data(1000), batch_size=4)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=10**6)
made = 0
for i, (x, y) in enumerate(training):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    if i % 3 == 2:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    before = optimizer.state_dict(), model[0].weight.clone()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    made += not torch.equal(before[1], model[0].weight)
    scaler.update()
    if i < 13:
        print(float(loss), made, flush=True)
"""
    )
    assert_measured(result)
    steps, _ = result.steps()
    # The scaler's three calls are the optimizer phase, whether or not the optimizer steps.
    assert steps == [["data", "forward", "backward", "optimizer", "optimizer", "optimizer"]] * 6
    printed = [line.split() for line in result.out.splitlines()]
    assert int(printed[-1][1]) < len(printed), "no step was skipped"
    seen = [float(loss) for loss, _ in printed][2:13]  # two steps to learn from
    want = [None if loss == float("inf") else pytest.approx(loss) for loss in seen]
    assert result.sidecar["losses"] == want  # the loss itself, not the scaled one


COMPILED = (
    HEAD
    + """
import atexit
model = torch.compile(net(){how})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
import torch._dynamo.utils as u
def say():
    counts = dict(u.counters["stats"]), dict(u.counters["graph_break"]), dict(u.counters["recompiles"])
    print("DYNAMO", *counts, u.counters["frames"]["total"])
atexit.register(say)
done = 0
for x, y in DataLoader(data(30), batch_size=4):
    x.to("meta")
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
)


def test_compiled_module_is_not_compiled_again(run_script, monkeypatch):
    """Hooks neither break graphs nor make dynamo compile again: its counters are those of the plain run."""
    monkeypatch.setenv("TORCH_LOGS", "recompiles")
    source = COMPILED.format(how="" if shutil.which("g++") else ", backend='aot_eager'")
    result = run_script(source)
    assert_measured(result)
    assert result.steps() == ([PLAIN] * 6, [])
    assert "DYNAMO {'calls_captured': 3, 'unique_graphs': 1} {} {} 1" in result.out, result.out
    assert "Recompiling" not in result.err
    assert "global hooks" not in result.err


def test_compiled_function_has_its_forward_phase_by_inference(run_script):
    """No module call is visible: forward is what lies between the data and the backward pass. What is compiled once the
    wrappers are there (a new shape) has no graph breaks either, and no copy in it is a phase."""
    source = COMPILED.format(how="").replace("model = torch.compile(net())", "model = net()")
    source = source.replace(
        "F.mse_loss(model(x), y)\n", "whole(x[done > 8 :], y[done > 8 :])\n    done += 1\n"
    ).replace(
        "done = 0",
        "done = 0\nwhole = torch.compile(lambda x, y: (torch.ones(1).to('meta'), "
        "F.mse_loss(model(x.to('cpu').to(dtype=torch.float32)), y))[1], backend='aot_eager', dynamic=False)",
    )
    result = run_script(source)
    assert_measured(result)
    steps, _ = result.steps()
    assert steps == [["data", "forward", *PLAIN[1:]]] * 6
    assert "'unique_graphs': 2} {} {} 2" in result.out, result.out


def test_compiled_function_that_runs_the_backward_pass(run_script, tmp_path):
    """Dynamo leaves it at ``backward`` and goes on after it, and finds nothing of perfci to compile on the way."""
    source = COMPILED.format(how="").replace("model = torch.compile(net())", "model = net()")
    source = source.replace('*counts, u.counters["frames"]["total"]', "counts[0], sum(counts[1].values())")
    source = source.replace("    loss.backward()\n", "").replace(
        "F.mse_loss(model(x), y)\n", "whole(x[done > 8 :], y[done > 8 :])\n    done += 1\n    if done == 13: break\n"
    )
    source = source.replace(
        "done = 0",
        """
done = 0
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
def whole(x, y):
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    return loss.detach()
whole = torch.compile(whole, backend="aot_eager", dynamic=False)
""",
    )
    (tmp_path / "plain.py").write_text(source)
    plain = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    result = run_script(source, wall=2, capture=5)
    assert_measured(result, {"warmup": 2, "wall": 2, "capture": 5})
    assert result.steps() == ([["data", "forward", "h2d", "forward", "backward", "optimizer"]] * 5, [])
    said = [re.search("DYNAMO .*", text)[0] for text in (plain.stdout, result.out)]
    assert said[0] == said[1]


def test_two_ranks_with_validation_on_one_of_them(run_script):
    """Rank 0 alone validates after each epoch, then all meet in a collective: perfci's own barriers must not come
    between."""
    result = run_script(
        HEAD
        + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
held_out = DataLoader(data(2), batch_size=4)
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = DataLoader(data(5), batch_size=4)
for epoch in range(1000):
    for x, y in training:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    score = torch.zeros(1)
    if rank == 0:
        with torch.no_grad():
            for x, y in held_out:
                score += F.mse_loss(model.module(x), y)
    dist.all_reduce(score)
""",
        command=("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"),
        warmup=3,
        wall=5,
        capture=5,  # windows end where epochs do
    )
    assert result.exit_code == 0, result.err
    assert [s["rank"] for s in result.sidecars] == [0, 1]
    for rank, sidecar in enumerate(result.sidecars):
        assert sidecar["status"] == "complete", sidecar["reason"]
        assert [w["steps"] for w in sidecar["windows"].values()] == [3, 5, 5]
        steps, _ = result.steps(rank)
        assert steps == [["data", "forward", "backward", "optimizer"]] * 5


def test_closures_and_a_script_that_ends_early(run_script):
    result = run_script(
        HEAD
        + """
model, (x, y) = net(), data(1)[:]
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss
for _ in range(9):
    optimizer.step(closure)
print("the end")
""",
        wall=50,
    )
    assert result.exit_code == 0, result.err
    assert "the end" in result.out
    assert result.sidecar["status"] == "short"
    # Two steps to learn from; the last one has no end that perfci could see.
    assert result.sidecar["reason"] == "the script ended after 4 of 50 wall steps"


def test_a_script_that_fails(run_script):
    result = run_script(
        HEAD
        + """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(DataLoader(data(100), batch_size=4)):
    try:
        if i == 4:
            model(x[:, :3])  # raises inside the forward pass, and the script copes
    except RuntimeError:
        continue
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    if i == 9:
        raise ValueError("the loss went up")
"""
    )
    assert result.exit_code == 1
    assert "ValueError: the loss went up" in result.err
    assert result.sidecar["status"] == "aborted"
    assert result.sidecar["reason"] == "ValueError: the loss went up"
    assert result.sidecar["windows"]["wall"]["steps"] == 3  # the forward pass that failed unbalanced nothing


def test_a_script_that_uses_perfci_is_left_alone(run_script):
    result = run_script(
        HEAD
        + """
from perfci import phases
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in phases.loop(DataLoader(data(100), batch_size=4)):
    with phases.phase("mine"):
        F.mse_loss(model(x), y).backward()
        optimizer.step()
print("after the loop")
"""
    )
    assert result.exit_code == 0, result.err
    assert "the script marks its phases itself; autophase adds nothing" in result.err
    assert result.steps() == ([["data", "mine"]] * 6, [])
    assert "after the loop" in result.out  # phases.loop ends the loop, not the script
    assert result.window_steps() == COMPLETE


@pytest.mark.parametrize(
    ("stage", "left"), [(1, "complete"), (2, "complete"), (6, "complete"), (12, "aborted")], ids=str
)
def test_a_loop_of_the_script_after_optimizer_steps_of_an_earlier_stage(run_script, stage, left):
    """Autophase has begun when the script's own loop does, and gives way; under the profiler it is too late."""
    result = run_script(
        HEAD
        + f"""
from perfci import phases
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = DataLoader(data(100), batch_size=4)
for _ in range({stage}):
    F.mse_loss(model(torch.randn(4, 8)), torch.zeros(4, 1)).backward()
    optimizer.step()
for x, y in phases.loop(training, wall=4):
    with phases.phase("forward"):
        loss = F.mse_loss(model(x), y)
    with phases.phase("backward"):
        loss.backward()
    with phases.phase("mine"):
        optimizer.step()
    phases.log_loss(loss)
print("after the loop")
"""
    )
    assert result.sidecar["status"] == left
    if left == "aborted":
        assert result.exit_code == 1
        assert result.sidecar["reason"] == (
            "phases.loop began when autophase had begun the capture: set autophase to false"
        )
        return
    assert result.exit_code == 0, result.err
    assert "the script marks its loop itself; autophase adds nothing more" in result.err
    assert result.steps() == ([["data", "forward", "backward", "mine"]] * 6, [])
    assert result.window_steps() == {"warmup": 2, "wall": 4, "capture": 6}  # as the loop wishes
    assert len(result.sidecar["losses"]) == 12
    assert "after the loop" in result.out


def test_marks_without_a_loop_are_told(run_script):
    result = run_script(
        HEAD
        + """
from perfci import phases
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data(20), batch_size=4):
    with phases.phase("mine"):
        F.mse_loss(model(x), y).backward()
        optimizer.step()
"""
    )
    assert result.sidecars == []
    assert "autophase adds nothing, and steps are measured only in phases.loop" in result.err


def test_a_script_that_first_asks_whether_torch_is_installed(run_script):
    """As transformers and others do: the module is found, and not yet loaded."""
    result = run_script(
        """
import importlib.util
found = importlib.util.find_spec("torch")
print("TORCH", found.loader.get_filename("torch") == found.origin, importlib.util.find_spec("torch.nn") is not None)
"""
        + HEAD
        + """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data(100), batch_size=4):
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    )
    assert_measured(result)
    assert "TORCH True True" in result.out


def test_a_model_that_is_a_script_keeps_its_forward_phase(run_script):
    """Hooks of its own would have to be scripts: the global hooks stay."""
    result = run_script(
        HEAD
        + """
model = torch.jit.trace(net(), torch.randn(4, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data(100), batch_size=4):
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    )
    assert_measured(result)
    assert result.steps() == ([["data", "forward", "backward", "optimizer"]] * 6, [])


def test_a_new_model_after_the_warm_up(run_script):
    """As in the folds of a cross-validation, here in the profiled window."""
    result = run_script(
        HEAD
        + """
training = DataLoader(data(5), batch_size=4)
for fold in range(1000):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in training:
            F.mse_loss(model(x), y).backward()
            optimizer.step()
"""
    )
    assert_measured(result)
    assert result.steps()[0] == [["data", "forward", "backward", "optimizer"]] * 6


def test_a_model_that_begins_to_train_after_the_warm_up(run_script):
    """It is not known before its optimizer has stepped: only its first forward pass is missed."""
    result = run_script(
        HEAD
        + """
model, critic = net(), net()
optimizer, of_critic = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, critic))
for number, (x, y) in enumerate(DataLoader(data(1000), batch_size=4)):
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    if number > 8:
        critic(x).mean().backward()
        of_critic.step()
"""
    )
    assert_measured(result)
    part = ["forward", "backward", "optimizer"]
    assert result.steps()[0] == [["data", *part]] * 2 + [["data", *part, *part[1:]]] + [["data", *part, *part]] * 3


def test_the_wrapped_model_validates_after_the_warm_up(run_script):
    """As with DDP: the wrapper trains, the module in it validates, here for the first time in the profiled window."""
    result = run_script(
        HEAD
        + """
model = torch.optim.swa_utils.AveragedModel(net())  # any wrapper
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(1000):
    F.mse_loss(model(torch.randn(4, 8)), torch.zeros(4, 1)).backward()
    optimizer.step()
    if i > 7 and i % 2 == 0:
        model.eval()
        with torch.no_grad():
            model.module(torch.randn(4, 8))
        model.train()
"""
    )
    assert_measured(result)
    steps, outside = result.steps()
    assert steps == [["forward", "backward", "optimizer"]] * 6
    assert outside == ["validation"] * 2


def test_optimizers_stepped_by_gradient_hooks_on_a_thread_of_autograd(run_script):
    """On a GPU the hooks run on autograd's own thread, while the training thread waits in ``backward``. Here a thread
    that Python did not start stands for it."""
    result = run_script(
        HEAD
        + """
import _thread
model = net()
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
of_autograd = set()
torch._C._current_graph_task_id = lambda: 7 if _thread.get_ident() in of_autograd else -1
def hook(parameter):
    def there():
        of_autograd.add(_thread.get_ident())
        try:
            optimizers[parameter].step()
        finally:
            of_autograd.remove(_thread.get_ident())
            done.release()
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(there, ())
    done.acquire()
    optimizers[parameter].zero_grad()
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(hook)
for x, y in DataLoader(data(100), batch_size=4):
    F.mse_loss(model(x), y).backward()
"""
    )
    assert_measured(result)
    assert result.steps() == ([["data", "forward", "backward"]] * 6, [])


HOSTILE = (
    HEAD
    + """
import os, subprocess
if len(sys.argv) == 1:
    child = "import sys, torch; print('CHILD', torch.Tensor.to.__name__, 'perfci.phases' in sys.modules)"
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    import sitecustomize
    print("SITE", sitecustomize.VALUE, [p for p in sys.path if p.endswith("inject")], torch.__spec__.loader.__class__)
    while True:
        try:
            F.mse_loss(model(torch.randn(4, 8)), torch.zeros(4, 1)).backward()
            optimizer.step()
            if os.environ["PERFCI_AUTOPHASE"] == "0" and child:
                subprocess.run([sys.executable, "-c", child], check=True)
                child = ""
        except BaseException as error:  # noqa
            print("caught", type(error).__name__, flush=True)
"""
)


def test_script_that_catches_everything_children_and_a_sitecustomize_of_its_own(run_script, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("VALUE = 'kept'\n")
    result = run_script(HOSTILE, path=[own], collector="off")
    assert result.exit_code == 0, result.err
    assert result.sidecar["status"] == "complete"
    assert "SITE kept [] <class '_frozen_importlib_external.SourceFileLoader'>" in result.out
    assert "CHILD to False" in result.out
    assert result.out.count("caught MeasurementDone") == 100  # then perfci's patience ends


def test_nothing_happens_without_the_variable():
    code = "import sys; print([m for m in sys.modules if m.startswith('perfci')], sys.path.count(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(INJECT)],
        env={"PYTHONPATH": f"{INJECT}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[]", "0"]
