"""Where steps begin and end, for loops made at random: every iteration of the loop is a step, with its own phases."""

import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.autophase.tracker import MeasurementDone, Tracker
from perfci.phases import marks
from perfci.phases.driver import Driver
from perfci.phases.plan import Plan


class Optimizer:
    """Something that can be weakly referenced."""


class Recorder:
    """Steps as lists of the phases in them, written by marks; fails when ranges do not nest as they must."""

    def __init__(self):
        self.steps, self.outside, self.open = [], [], []
        marks.activate(marks.Marks("recorder", self.push, self.pop))

    def push(self, name):
        self.open.append(name)
        if name == "step":
            assert self.open == ["step"], "a step begins inside of something"
            self.steps.append([])
        else:
            assert len([n for n in self.open if n not in ("step", "perfci_dropped")]) <= 1, "phases nest"
            (self.steps[-1] if "step" in self.open else self.outside).append(name)

    def pop(self):
        self.open.pop()

    @property
    def whole(self):
        return [step for step in self.steps if "perfci_dropped" not in step]


class Script:
    """A training script as the signs that its calls give."""

    def __init__(self, tmp_path, *, world=1):
        self.recorder = Recorder()
        plan = Plan(sidecar=str(tmp_path / "sidecar.json"), warmup=10_000)
        self.tracker = Tracker(Driver(plan))

    def fetch(self, dataset, *, grad=True, found=True):
        self.tracker.fetch_begins(dataset, grad=grad)
        self.tracker.fetch_ends(found=found)

    def h2d(self, *, grad=True):
        self.tracker.transfer_begins(grad=grad)
        self.tracker.phase_ends()

    def forward(self, *, grad=True, training=True, trained=True, inner=2):
        self.tracker.forward_begins(grad=grad, training=training, trained=lambda: trained)
        for _ in range(inner):
            self.tracker.forward_begins(grad=grad, training=training, trained=lambda: trained)
            self.tracker.phase_ends()
        self.tracker.phase_ends()

    def backward(self, *, recompute=False):
        self.tracker.backward_begins(None)
        if recompute:
            self.forward()
        self.tracker.phase_ends()

    def step(self, optimizer):
        self.tracker.optimizer_begins()
        self.tracker.optimizer_ends(optimizer)

    def counted(self):
        return len(self.tracker.driver.windows["warmup"])


@pytest.fixture(autouse=True)
def no_marks_left():
    yield
    marks.deactivate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tracker")


@settings(max_examples=150, deadline=None)
@given(
    accumulate=st.integers(1, 4),
    updates=st.integers(1, 4),
    remainder=st.integers(0, 3),
    epochs=st.integers(2, 4),
    optimizers=st.integers(1, 3),
    together=st.booleans(),
    ahead=st.booleans(),
    validates=st.sampled_from(["never", "no_grad", "grad", "inside"]),
    h2d=st.booleans(),
    recompute=st.booleans(),
)
def test_every_iteration_over_a_loader_is_a_step(  # noqa: PLR0917  (hypothesis gives them by name)
    folder, accumulate, updates, remainder, epochs, optimizers, together, ahead, validates, h2d, recompute
):
    """The oracle is the loop itself: it counts the iterations that it makes."""
    script, training, held_out = Script(folder), object(), object()
    all_optimizers = [Optimizer() for _ in range(optimizers)]
    remainder = min(remainder, accumulate - 1)
    batches = accumulate * updates + remainder
    iterations = 0

    def micro():
        if h2d:
            script.h2d()
        script.forward()
        script.backward(recompute=recompute)

    def update():
        for optimizer in all_optimizers:
            if not together and optimizer is not all_optimizers[0]:
                micro()
            script.step(optimizer)

    for _ in range(epochs):
        if ahead:
            script.fetch(training)
        for batch in range(batches):
            script.fetch(training, found=not (ahead and batch == batches - 1))
            micro()
            if (batch + 1) % accumulate == 0:
                update()
                iterations += 1
        if not ahead:
            script.fetch(training, found=False)
        if validates != "never":
            for _ in range(2):
                script.fetch(held_out, grad=validates != "inside")
                if h2d:
                    script.h2d(grad=validates == "grad")
                script.forward(grad=validates == "grad", training=False)
            script.fetch(held_out, grad=validates != "inside", found=False)

    recorder = script.recorder
    seen = [step.count("optimizer") for step in recorder.whole]
    assert all(count in (0, optimizers) for count in seen), "a step was cut or joined"
    lost = 2 + epochs + 1  # two to learn; at most the end of each epoch, where a fetch finds nothing; the one under way
    if updates * epochs > lost + 1:
        assert iterations - lost <= script.counted() <= iterations - 1
    assert not any("validation" in step for step in recorder.whole[:-1] if validates in ("no_grad", "inside"))
    if validates != "never" and updates * epochs > 4:
        assert "validation" in recorder.outside or any("validation" in step for step in recorder.steps)


@settings(max_examples=100, deadline=None)
@given(
    order=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    rounds=st.integers(4, 12),
    accumulate=st.integers(1, 3),
    teacher=st.booleans(),
    validates=st.booleans(),
)
def test_every_iteration_without_a_loader_is_a_step(  # noqa: PLR0917  (hypothesis gives them by name)
    folder, order, rounds, accumulate, teacher, validates
):
    """GAN, optimizers in turn, accumulation, a frozen teacher, validation every third round: all without a loader."""
    script = Script(folder)
    optimizers = [Optimizer() for _ in range(3)]
    for number in range(rounds):
        if validates and number % 3 == 2:
            for _ in range(3):
                script.forward(grad=False, training=False)
        if teacher:
            script.forward(grad=False, training=False, trained=False)
        for which in order:
            for _ in range(accumulate):
                script.h2d()
                script.forward()
                script.backward()
            script.step(optimizers[which])
    part = [*["h2d", "forward", "backward"] * accumulate, "optimizer"]
    want = [*(["forward"] if teacher else []), *part * len(order)]
    whole = script.recorder.whole
    assert script.counted() >= rounds - 3
    # A teacher right after a validation cannot be told from it: it is asked for without gradients as well.
    assert [step for step in whole[:-1] if step != want and not (validates and step == part * len(order))] == []
    assert set(script.recorder.outside) <= {*want, "validation"}
    if validates and rounds > 6:
        assert "validation" in script.recorder.outside


def test_critic_steps_before_each_generator_step(tmp_path):
    """One step per batch, the generator's update in the step of the batch before it."""
    script, data, critic, generator = Script(tmp_path), object(), Optimizer(), Optimizer()
    for number in range(20):
        script.fetch(data)
        script.forward()
        script.backward()
        script.step(critic)
        if number % 5 == 4:
            script.forward()
            script.backward()
            script.step(generator)
    counts = [step.count("optimizer") for step in script.recorder.whole[:-1]]
    assert script.counted() == 17  # 20 less two to learn from and one under way
    assert sorted(set(counts)) == [1, 2]
    assert counts.count(2) == 3


def test_one_suspicious_batch_is_not_training(tmp_path):
    """A batch fetched ahead waits while a validation runs: its update proves nothing about the validation data."""
    script, training, held_out, optimizer = Script(tmp_path), object(), object(), Optimizer()

    def train(*, validate=False):
        script.fetch(training)
        if validate:
            script.fetch(held_out)
            script.forward(training=False)
        script.forward()
        script.backward()
        script.step(optimizer)

    for number in range(12):
        train(validate=number == 5)
    script.fetch(held_out)
    assert script.tracker._validation == "fetch"
    assert [step for step in script.recorder.whole if step.count("optimizer") != 1] == []


def test_validation_before_the_forward_pass_of_a_fetched_batch(tmp_path):
    """``if step % 3 == 0: evaluate()`` at the top of the loop: what follows is training again."""
    script, training, held_out, optimizer = Script(tmp_path), object(), object(), Optimizer()
    for number in range(12):
        script.fetch(training)
        if number % 3 == 0:
            for _ in range(2):
                script.fetch(held_out, grad=False)
                script.h2d(grad=False)
                script.forward(grad=False, training=False)
            script.fetch(held_out, grad=False, found=False)
        script.h2d()
        script.forward()
        script.backward()
        script.step(optimizer)
    plain = ("data", "h2d", "forward", "backward", "optimizer")
    assert {tuple(step) for step in script.recorder.whole[:-1]} == {plain, ("data", "validation", *plain[1:])}
    assert script.counted() == 12 - 3


def test_validation_of_a_few_batches_before_the_forward_pass(tmp_path):
    """It does not say that it is over: the model's mode does."""
    script, training, held_out, optimizer = Script(tmp_path), object(), object(), Optimizer()
    for number in range(9):
        script.fetch(training)
        if number % 3 == 2:
            for _ in range(2):
                script.fetch(held_out)
                script.forward(training=False)  # with gradients
        script.forward()
        script.backward()
        script.step(optimizer)
    assert script.recorder.whole[3] == ["data", "validation", "forward", "backward", "optimizer"]


def gan_step(script, critic, generator, *, rounds=1):
    for _ in range(rounds):
        script.forward(grad=False)  # the generator makes a batch for the critic
        script.forward()
        script.backward()
        script.step(critic)
    script.forward()
    script.backward()
    script.step(generator)


def test_a_generator_without_gradients_in_training_mode_is_no_validation(tmp_path):
    """Without a loader the step begins there, once it is seen to be a habit; a real validation still is one."""
    script, critic, generator = Script(tmp_path), Optimizer(), Optimizer()
    for number in range(12):
        if number == 8:
            for _ in range(2):
                script.forward(grad=False, training=False)
        gan_step(script, critic, generator)
    usual = ["forward", "forward", "backward", "optimizer", "forward", "backward", "optimizer"]
    assert script.recorder.whole[2:-1] == [usual] * len(script.recorder.whole[2:-1])
    assert script.recorder.outside[-1] == "validation"
    assert script.counted() == 12 - 3


def test_a_rare_validation_in_training_mode_is_in_no_step(tmp_path):
    """Scripts without dropout often leave the mode alone."""
    script, optimizer = Script(tmp_path), Optimizer()
    for number in range(16):
        script.forward()
        script.backward()
        script.step(optimizer)
        if number % 4 == 0:
            script.forward(grad=False)
    assert {tuple(step) for step in script.recorder.whole} == {("forward", "backward", "optimizer")}
    assert script.recorder.outside.count("validation") == 3  # the first falls into the learning


def test_several_updates_on_each_batch_of_a_loader_are_one_step(tmp_path):
    """A critic's three updates come first, so the batch is not seen to be fetched while the cycle is learned."""
    script, data, critic, generator = Script(tmp_path), object(), Optimizer(), Optimizer()
    for _ in range(8):
        script.fetch(data)
        gan_step(script, critic, generator, rounds=3)
    part = ["forward", "backward", "optimizer"]
    assert script.recorder.whole[-5:-1] == [["data", *["forward", *part] * 3, *part]] * 4


def test_one_batch_of_validation_now_and_then_is_not_training(tmp_path):
    script, held_out, optimizer = Script(tmp_path), object(), Optimizer()
    for number in range(20):
        if number % 4 == 3:
            script.fetch(held_out, grad=False)
            script.forward(grad=False, training=False)
        script.forward()
        script.backward()
        script.step(optimizer)
    assert {tuple(step) for step in script.recorder.whole} == {("forward", "backward", "optimizer")}
    assert script.recorder.outside.count("validation") == 5


def test_the_loss_of_a_second_optimizer_is_in_its_forward_phase(tmp_path):
    script, data, first, second = Script(tmp_path), object(), Optimizer(), Optimizer()
    for _ in range(4):
        script.fetch(data)
        for optimizer in (first, second):
            script.forward()
            if script.tracker.driver.in_step:
                assert script.recorder.open == ["step", "forward"]  # the loss is computed here
            script.backward()
            script.step(optimizer)
    script.forward(training=False)  # a look at the result, with gradients
    assert script.recorder.open == ["step"]


def test_two_loaders_side_by_side(tmp_path):
    script, labelled, unlabelled, held_out, optimizer = Script(tmp_path), object(), object(), object(), Optimizer()
    for _ in range(3):
        for _ in range(4):
            script.fetch(labelled)
            script.fetch(unlabelled)
            script.forward(grad=False)  # pseudo-labels
            script.forward()
            script.backward()
            script.step(optimizer)
        script.fetch(labelled, found=False)
        script.fetch(held_out)
        script.forward(grad=False)
        script.fetch(held_out, found=False)
    assert {tuple(step) for step in script.recorder.whole} == {
        ("data", "data", "forward", "forward", "backward", "optimizer")
    }
    assert script.counted() == 12 - 2
    assert set(script.recorder.outside) <= {"data", "forward", "backward", "optimizer", "validation"}
    assert script.recorder.outside.count("validation") >= 2


def test_a_new_loader_each_epoch_is_found_to_be_training(tmp_path):
    script, optimizer = Script(tmp_path), Optimizer()
    kept = [object() for _ in range(3)]
    for dataset in kept:
        for _ in range(8):
            script.fetch(dataset)
            script.forward()
            script.backward()
            script.step(optimizer)
    assert script.counted() >= 24 - 3 - 2 * 3
    assert {step.count("optimizer") for step in script.recorder.whole[:-1]} == {1}


def test_a_look_at_the_training_data_without_gradients_is_no_step(tmp_path):
    script, data, optimizer = Script(tmp_path), object(), Optimizer()
    for _ in range(3):
        for _ in range(6):
            script.fetch(data)
            script.forward()
            script.backward()
            script.step(optimizer)
        for _ in range(5):
            script.fetch(data)
            script.forward(grad=False)
    assert {tuple(step) for step in script.recorder.whole[:-1]} == {("data", "forward", "backward", "optimizer")}


def test_optimizers_are_not_kept_alive(tmp_path):
    script, optimizer = Script(tmp_path), Optimizer()
    for _ in range(4):
        script.forward()
        script.backward()
        script.step(optimizer)
    gone = weakref.ref(optimizer)
    del optimizer
    assert gone() is None
    replacement = Optimizer()
    before = script.counted()
    for _ in range(4):
        script.forward()
        script.backward()
        script.step(replacement)
    assert script.counted() == before + 4


def test_the_script_is_ended_at_the_next_sign(tmp_path):
    tracker = Tracker(Driver(Plan(sidecar=str(tmp_path / "s.json"), warmup=1, warmup_cap=1, wall=2)))
    optimizer, data = Optimizer(), object()
    for number in range(6):
        if number == 5:
            with pytest.raises(MeasurementDone) as done:
                tracker.fetch_begins(data, grad=True)
            assert done.value.code == 0
            assert isinstance(done.value, SystemExit)
            break
        tracker.fetch_begins(data, grad=True)
        tracker.fetch_ends(found=True)
        tracker.optimizer_begins()
        tracker.optimizer_ends(optimizer)
    assert tracker.driver.finished
    for sign in (
        lambda: tracker.transfer_begins(grad=True),
        lambda: tracker.backward_begins(None),
        tracker.optimizer_begins,
        tracker.scaler_begins,
        lambda: tracker.forward_begins(grad=True, training=True, trained=lambda: True),
    ):
        with pytest.raises(MeasurementDone):
            sign()
    tracker.phase_ends()  # ends never raise: they run while the exception passes
