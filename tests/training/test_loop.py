"""The training loop: it learns, resumes bit for bit, saves when interrupted, and loses no data."""

import errno
import json
import math
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vcdeploy.corpora import load
from vcdeploy.errors import VcdeployError
from vcdeploy.spec import DENSE_UNITS, UNITS
from vcdeploy.training import checkpoint
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.distributed import Processes
from vcdeploy.training.loop import LOG_EVERY, Interrupted, Trainer

MakeTrainer = Callable[..., Trainer]


def rows(trainer: Trainer, split: str) -> list[dict[str, Any]]:
    lines = (trainer.folder / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == split]


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return checkpoint.read(trainer.folder / "last.safetensors").model


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_learns(make_trainer: MakeTrainer, unit: str) -> None:
    trainer = make_trainer(unit=unit, epochs=3.0, dim=24, lr=0.01)
    trainer.run()
    first, *_, last = rows(trainer, "valid")
    frequencies = np.bincount(trainer.corpus.splits["valid"]) / len(trainer.corpus.splits["valid"])
    by_frequency = -sum(p * math.log2(p) for p in frequencies if p)  # bits of a model without memory
    assert last["bits"] < first["bits"] < by_frequency
    assert last["bits"] < 0.4 * by_frequency
    for name in ("loss", "bits", "m", "m_spread", "rnn_d", "macs", "compute", "sharpness"):
        assert math.isfinite(last[name])
    assert all(row["tokens_per_second"] > 0 for row in rows(trainer, "step"))
    if unit in DENSE_UNITS:
        assert last["m"] == 1
        assert last["m_spread"] == 0
        assert last["compute"] == 1


def test_sharpness_and_learning_rate_follow_their_schedules(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(epochs=4.0, sharpness_end=0.3)
    trainer.run()
    epoch = trainer.train.segments
    ends = [0.1 + 0.1 * (epoch - 1) / epoch, 0.2 + 0.1 * (epoch - 1) / epoch, 0.3, 0.3]  # at the last step of each
    assert [row["sharpness"] for row in rows(trainer, "valid")] == pytest.approx(ends)
    assert rows(trainer, "valid")[-1]["lr"] == pytest.approx(2e-4, rel=0.01)
    assert checkpoint.read(trainer.folder / "best.safetensors").config["sharpness"] == 0.3
    by_step = make_trainer("by-step", epochs=1.0, sharpness_every=50)
    by_step.run()
    assert rows(by_step, "valid")[-1]["sharpness"] == pytest.approx(0.1 + 0.1 * (by_step.total - 1) / 50)


def test_schedulers_take_smaller_steps_and_are_clipped_separately(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(unit="vclstm", layers=2, epochs=1.0, warmup=0, clip=1e-3, scheduler_rate=0.25)
    before = {name: each.detach().clone() for name, each in trainer.model.named_parameters()}
    trainer._step()
    moved = {name: float((each.detach() - before[name]).abs().max()) for name, each in trainer.model.named_parameters()}
    for group, multiple in zip(trainer.optimizer.param_groups, (1.0, 0.25), strict=True):
        norms = torch.stack([each.grad.norm() for each in group["params"] if each.grad is not None])
        # Clipping divides by the norm + 1e-6, and the norm was at least 1e-3.
        assert norms.norm() == pytest.approx(1e-3, rel=1e-3)
        assert group["lr"] == pytest.approx(2e-3 * multiple)
    schedulers = {f"unit.layers.{layer}.{name}" for layer in (0, 1) for name in "uvb"}
    for name, each in trainer.model.named_parameters():
        assert each.grad is not None
        most = float(each.grad.abs().max())
        step = (5e-4 if name in schedulers else 2e-3) * most / (most + 1e-8)  # Adam's first step, with its epsilon
        # Weights below 4 are rounded by up to 1.2e-7.
        assert moved[name] == pytest.approx(step, rel=1e-5, abs=1.2e-7), name


def test_the_state_is_carried_over_but_for_the_stream_whose_turn_it_is(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(epochs=1.0, restart=4)
    seen: list[torch.Tensor | None] = []
    forward = trainer.model.forward

    def watch(tokens: torch.Tensor, state: torch.Tensor | None, boundaries: torch.Tensor | None) -> Any:
        seen.append(state)
        result = forward(tokens, state, boundaries)
        seen.append(result[1].detach())
        return result

    monkeypatch.setattr(trainer.model, "forward", watch)
    for _ in range(2):
        trainer._step()
    assert seen[0] is None
    assert seen[1] is not None
    restarted = trainer.train.restarting(1, trainer.config.restart)
    assert restarted.sum() == 1
    assert seen[2] is not None
    assert torch.equal(seen[2][:, ~restarted], seen[1][:, ~restarted])
    assert (seen[2][:, restarted] == 0).all()
    assert (seen[1] != 0).any()


@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "vcgru", "dropout": 0.2},
        {"unit": "vclstm", "budget": 0.5, "layers": 2},
        {"unit": "vcrnn", "setting": "entropy", "lowercase": 0.5},
        {"unit": "lstm"},
        {"unit": "crnn"},
    ],
    ids=lambda settings: settings["unit"],
)
@pytest.mark.parametrize("stop_at", [70, 137])  # in the middle of an epoch; near the end of one
def test_resumed_run_ends_with_the_same_bits(make_trainer: MakeTrainer, settings: dict[str, Any], stop_at: int) -> None:
    whole = make_trainer("whole", epochs=1.5, **settings)
    whole.run()
    first = make_trainer("parts", epochs=1.5, **settings)

    def interrupt(step: int) -> None:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    first.on_step = interrupt
    with pytest.raises(Interrupted, match="SIGTERM"):
        first.run()
    second = make_trainer("parts", epochs=1.5, **settings)
    second.restore(checkpoint.read(second.folder / "last.safetensors"))
    assert stop_at < second.step < second.total
    second.run()
    for name, wanted in weights(whole).items():
        assert torch.equal(weights(second)[name], wanted), name
    strip = {"tokens_per_second"}
    for one, other in zip(rows(whole, "valid"), rows(second, "valid"), strict=True):
        assert {k: v for k, v in one.items() if k not in strip} == {k: v for k, v in other.items() if k not in strip}
    assert [row["step"] for row in rows(whole, "step")] == [row["step"] for row in rows(second, "step")]


def test_lower_case_is_for_the_training_text_only(tmp_path: Path) -> None:
    text = tmp_path / "capitals.txt"
    text.write_text("THE Prime Minister the prime minister\n" * 200)
    corpus = load(str(text))
    small = TrainConfig(corpus="capitals", dim=8, batch=4, bptt=20, lowercase=1.0)
    trainer = Trainer(small, corpus, tmp_path, Processes(0, 1, torch.device("cpu")))
    train, valid = (
        corpus.vocab.decode(each.segment(0)[0].T.flatten().numpy()) for each in (trainer.train, trainer.valid)
    )
    assert train == train.lower()
    assert valid != valid.lower()


def test_a_killed_run_logs_no_step_twice(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(epochs=2.0, save_every=60)

    def die(step: int) -> None:
        if step == 110:
            raise RuntimeError("power cut")

    trainer.on_step = die
    with pytest.raises(RuntimeError, match="power cut"):
        trainer.run()
    assert rows(trainer, "step")[-1]["step"] == 100
    again = make_trainer(epochs=2.0, save_every=60)
    again.restore(checkpoint.read(again.folder / "last.safetensors"))
    assert again.step == 60
    again.run()
    steps = [row["step"] for row in rows(again, "step")]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_first_and_handlers_are_restored(make_trainer: MakeTrainer, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    trainer = make_trainer(save_every=10**6)
    trainer.on_step = lambda step: os.kill(os.getpid(), number) if step == 3 else None
    with pytest.raises(Interrupted) as caught:
        trainer.run()
    assert caught.value.number == number
    assert checkpoint.read(trainer.folder / "last.safetensors").progress["step"] == 4
    assert signal.getsignal(number) is before


def test_a_second_signal_stops_at_once_without_damage(make_trainer: MakeTrainer) -> None:
    before = signal.getsignal(signal.SIGINT)
    trainer = make_trainer(save_every=5)

    def twice(step: int) -> None:
        if step == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    trainer.on_step = twice
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert checkpoint.read(trainer.folder / "last.safetensors").progress["step"] == 5
    assert signal.getsignal(signal.SIGINT) is before
    with make_trainer().locked():  # the folder is free again
        pass


def test_a_loss_that_is_not_finite_stops_the_run(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(save_every=5)

    def poison(step: int) -> None:
        if step == 7:
            trainer.model.output.bias.data[0] = math.nan

    trainer.on_step = poison
    with pytest.raises(VcdeployError, match=r"the loss is nan at step 7 .*: lower --lr"):
        trainer.run()
    kept = checkpoint.read(trainer.folder / "last.safetensors")
    assert kept.progress["step"] == 5
    assert all(each.isfinite().all() for each in kept.model.values())


def test_a_run_that_diverges_stops_and_keeps_the_checkpoint_of_before(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(epochs=50.0, save_every=LOG_EVERY)

    def spoil(step: int) -> None:
        if step == LOG_EVERY:
            trainer.model.output.bias.data[0] += 20

    trainer.on_step = spoil
    with pytest.raises(VcdeployError, match=rf"training diverged: .* at step {2 * LOG_EVERY} .* a lower --lr"):
        trainer.run()
    assert checkpoint.read(trainer.folder / "last.safetensors").progress["step"] == LOG_EVERY


def test_metrics_reach_the_disk_before_the_checkpoint_that_counts_them(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = list[str](), os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    trainer = make_trainer(epochs=0.1)
    trainer.run()
    rows = (trainer.folder / "metrics.jsonl").read_text().count("\n")
    last = next(at for at, name in enumerate(synced) if name.startswith(".last.safetensors."))
    assert synced[:last].count("metrics.jsonl") == rows > 0


@pytest.mark.parametrize(
    ("losses", "diverges"),
    [
        ((0.028, 0.392), False),  # a memorized text, and a passage less well known
        ((0.028, 1.0), False),
        ((0.028, 2.0), True),
        ((1.2, 2.6), False),
        ((1.2, 2.8), True),
        ((6.2,), False),
        ((7.0,), True),  # from the start
    ],
)
def test_a_loss_has_diverged_if_half_of_what_was_learnt_is_lost(
    make_trainer: MakeTrainer, losses: tuple[float, ...], diverges: bool
) -> None:
    trainer = make_trainer()
    assert trainer.untrained == pytest.approx(math.log(20))
    for loss in losses[:-1]:
        trainer._check_course(loss)
    with pytest.raises(VcdeployError, match="training diverged") if diverges else nullcontext():
        trainer._check_course(losses[-1])


def test_another_text_under_the_same_name_is_refused(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(epochs=0.1)
    trainer.run()
    saved = checkpoint.read(trainer.folder / "last.safetensors")
    saved.progress["corpus"] = "10-00000000"
    with pytest.raises(VcdeployError, match="not what this run was trained on"):
        make_trainer().restore(saved)


def test_best_keeps_the_budget_before_the_bits(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(budget=0.5, epochs=0.1)
    outcomes = iter([(0.9, 1.0), (0.25, 3.0), (0.251, 2.0), (0.6, 1.5)])  # mean a²/D², bits

    def emit(split: str, tally: Any, **more: float) -> dict[str, float]:
        compute, bits = next(outcomes) if split == "valid" else (1.0, 1.0)
        return {"compute": compute, "bits": bits}

    trainer._emit = emit  # type: ignore[method-assign]
    best = []
    for _ in range(4):
        trainer._end_epoch()
        best.append(trainer.best)
    assert best == [[1, -1, 1.0], [0, -1, 3.0], [0, -1, 2.0], [0, -1, 2.0]]


def test_guided_symbols_outside_the_vocabulary_are_named(make_trainer: MakeTrainer) -> None:
    with pytest.raises(VcdeployError, match="--guide names '#'"):
        make_trainer(setting="guide", guide=" #")


@pytest.mark.parametrize("guide", [" \n", "boundaries"])
def test_guided_symbols_get_more_computation(make_trainer: MakeTrainer, guide: str) -> None:
    from vcdeploy.training.evaluate import evaluate

    trainer = make_trainer(
        setting="guide",
        guide=guide,
        target=0.2,
        guide_target=0.9,
        weight=3.0,
        epochs=4.0,
        lr=0.01,
        unit="vcrnn",
    )
    trainer.run()
    _, m = evaluate(trainer.model, trainer.valid)
    spaces = trainer.corpus.boundaries("valid")[:-1]
    assert m[spaces].mean() > 0.75
    assert m[~spaces].mean() < 0.35


def test_tensorboard_files_are_written(make_trainer: MakeTrainer) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = make_trainer()
    trainer.run()
    events = EventAccumulator(str(trainer.folder / "tensorboard")).Reload()
    (scalar,) = events.Scalars("valid/bits")
    assert scalar.value == pytest.approx(rows(trainer, "valid")[0]["bits"])


def test_evaluation_does_not_depend_on_the_cut(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """One stream in segments of 7 or of 100: the same nats and the same m, in text order."""
    from vcdeploy.training.evaluate import evaluate
    from vcdeploy.training.streams import Streams

    trainer = make_trainer()
    trainer.model.double()
    ids = trainer.corpus.splits["valid"]
    (one, m), (other, m_other) = (evaluate(trainer.model, Streams(ids, 1, length, exact=True)) for length in (7, 100))
    assert torch.allclose(one.sums, other.sums, rtol=1e-12)
    assert m.shape == (len(ids) - 1, 1)
    assert abs(m - m_other).max() < 1e-12
    logits, _, fractions = trainer.model(torch.from_numpy(ids.astype("int64")[:-1, None]))
    nats = torch.nn.functional.cross_entropy(logits[:, 0], torch.from_numpy(ids.astype("int64")[1:]), reduction="sum")
    assert one.sums[0].item() == pytest.approx(nats.item(), rel=1e-12)
    assert abs(m[:, 0] - fractions[:, 0, 0].detach().numpy()).max() < 1e-12


def test_a_budget_below_the_masks_reach_is_refused_at_once(make_trainer: MakeTrainer) -> None:
    with pytest.raises(VcdeployError, match=r"--budget 0.5 cannot be met: .* the mask covers 12 of 16 dimensions"):
        make_trainer(budget=0.5, sharpness_end=0.55)


@pytest.mark.parametrize("settings", [{"budget": 0.5}, {"target": 0.3}], ids=["budget", "target"])
def test_training_meets_its_budget_and_m_varies(make_trainer: MakeTrainer, settings: dict[str, float]) -> None:
    # Low goals: once learnt, this text needs little state, and nothing raises m to a higher goal.
    trainer = make_trainer(unit="vcrnn", dim=32, epochs=8.0, **settings)
    trainer.run()
    last = rows(trainer, "valid")[-1]
    if "budget" in settings:
        assert last["compute"] == pytest.approx(0.25, rel=0.02)
    else:
        assert last["m"] == pytest.approx(0.3, rel=0.02)
    assert last["m_spread"] > 0.05


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


def refuse(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch, what: str, **settings: Any) -> None:
    """Run a trainer in "parts" that cannot write `what` after some steps."""
    trainer = make("parts", **settings)
    if what == "best":
        real = checkpoint.write

        def write(path: Path, *rest: Any, **more: Any) -> None:
            if path.name == "best.safetensors":
                raise FULL
            real(path, *rest, **more)

        monkeypatch.setattr(checkpoint, "write", write)
    else:

        def on_row(row: dict[str, Any]) -> None:
            if row["split"] == what and row["step"] > LOG_EVERY:
                raise FULL

        trainer.on_row = on_row
    with pytest.raises(VcdeployError, match=r"could not write somewhere: No space left .* continue with --resume"):
        trainer.run()
    monkeypatch.undo()


@pytest.mark.parametrize("what", ["step", "train", "valid", "best"])
def test_a_run_on_a_full_disk_resumes_with_the_same_bits(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    settings = {"epochs": 1.0, "budget": 0.9, "unit": "vcrnn", "dropout": 0.1}
    whole = make_trainer("whole", **settings)
    whole.run()
    refuse(make_trainer, monkeypatch, what, **settings)
    second = make_trainer("parts", **settings)
    second.restore(checkpoint.read(second.folder / "last.safetensors"))
    assert second.unfinished
    second.run()
    for name in ("last", "best"):
        one, other = (checkpoint.read(each.folder / f"{name}.safetensors") for each in (whole, second))
        assert one.progress["step"] == other.progress["step"]
        assert one.progress["best"] == other.progress["best"]
        assert one.config == other.config
        assert all(torch.equal(other.model[weight], wanted) for weight, wanted in one.model.items())
    for split in ("step", "train", "valid"):
        logged = [
            [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows(each, split)]
            for each in (whole, second)
        ]
        assert logged[0] == logged[1]


def test_what_is_rescued_can_be_resumed(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`best` is the first file that does not fit, but only `last` can be resumed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))

    def full(path: Path, content: bytes) -> None:
        raise FULL

    trainer = make_trainer(epochs=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomically", full)
        with pytest.raises(VcdeployError, match=r"saved as .*-last.safetensors: free some space, move it to .*last"):
            trainer.run()
    (rescued,) = elsewhere.iterdir()
    rescued.rename(trainer.folder / "last.safetensors")
    again = make_trainer(epochs=0.5)
    again.restore(checkpoint.read(again.folder / "last.safetensors"))
    again.run()
    assert checkpoint.read(again.folder / "best.safetensors").progress["step"] == again.total
    assert len(rows(again, "valid")) == 1


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 50, "spl',
        b"\0" * 100,
        b'{"step": 50, "split": "step"}',
        b"[1]\n",
        b"5\n",
        b'{"step": "x"}\n',
        b"\xff\n",
    ],
)
def test_the_last_line_of_the_metrics_may_be_partial(make_trainer: MakeTrainer, tail: bytes) -> None:
    trainer = make_trainer(epochs=1.0, save_every=60)

    def die(step: int) -> None:
        if step == 70:
            raise RuntimeError("power cut")

    trainer.on_step = die
    with pytest.raises(RuntimeError, match="power cut"):
        trainer.run()
    with open(trainer.folder / "metrics.jsonl", "ab") as file:
        file.write(tail)
    again = make_trainer(epochs=1.0, save_every=60)
    again.restore(checkpoint.read(again.folder / "last.safetensors"))
    again.run()
    steps = [row["step"] for row in rows(again, "step")]
    assert steps == [*range(LOG_EVERY, again.total + 1, LOG_EVERY), *([again.total] if again.total % LOG_EVERY else [])]


def test_a_second_trainer_is_refused(make_trainer: MakeTrainer) -> None:
    first, second = make_trainer(epochs=0.1), make_trainer(epochs=0.1)
    with first.locked(), pytest.raises(VcdeployError, match=r"another process is training in .*run: wait for it"):
        second.run()
    assert not (first.folder / "metrics.jsonl").exists()
    second.run()
    assert os.listdir(first.folder).count("last.safetensors") == 1


@pytest.mark.parametrize("lr", [1e3, 1e30])
def test_a_loss_that_starts_to_rise_at_once_stops_the_run(make_trainer: MakeTrainer, lr: float) -> None:
    trainer = make_trainer(lr=lr, warmup=0, epochs=0.2)
    with pytest.raises(VcdeployError, match=r"training diverged|the loss is (nan|inf)"):
        trainer.run()
    assert not (trainer.folder / "last.safetensors").exists()
