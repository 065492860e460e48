"""The training loop: optimization steps, evaluation, metrics, checkpoints."""

import fcntl
import json
import math
import os
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vcdeploy.corpora import Corpus
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.training import checkpoint, resume, schedule
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.distributed import Processes
from vcdeploy.training.evaluate import evaluate
from vcdeploy.training.metrics import Tally, active_squares
from vcdeploy.training.objective import Objective, entropy
from vcdeploy.training.pieces import parameter_groups
from vcdeploy.training.streams import Streams
from vcdeploy.units import LanguageModel

Row = dict[str, Any]
BUDGET_TOLERANCE = 0.02  # relative, on the mean of a²/D²
LOG_EVERY = 50  # steps between rows of metrics.jsonl
# A loss above 2.0 × the lowest loss + 0.3 nats does not recover, once it has lost half of what the run had learnt.
DIVERGED = (2.0, 0.3)


class Interrupted(Exception):
    """The run was stopped by a signal; its state is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Trainer:
    """One run in one folder: last.safetensors (to resume), best.safetensors (to use), metrics.jsonl.

    on_row is called with every new row of metrics, on_step after every step with its number.
    """

    def __init__(
        self,
        config: TrainConfig,
        corpus: Corpus,
        folder: Path,
        processes: Processes,
        on_row: Callable[[Row], None] = lambda row: None,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.config, self.corpus, self.folder, self.processes = config, corpus, folder, processes
        self.on_row, self.on_step = on_row, on_step
        torch.manual_seed(config.seed)
        self.model = LanguageModel(
            config.unit,
            len(corpus.vocab),
            config.dim,
            layers=config.layers,
            dropout=config.dropout,
            epsilon=config.epsilon,
            initial_m=config.initial_m,
        ).to(processes.device)
        processes.agree(self.model)
        if processes.rank:  # different dropout masks on every process
            torch.manual_seed(config.seed + processes.rank)
        self.optimizer = torch.optim.Adam(_groups(self.model, config.scheduler_rate), lr=config.peak_lr, fused=True)
        bounded = config.unit == "crnn" or config.guide == "boundaries"
        read = corpus.lowercased(config.lowercase, config.seed) if config.lowercase else corpus

        def streams(split: str, exact: bool) -> Streams:
            return Streams(
                read.splits[split],
                config.batch,
                config.bptt,
                boundaries=read.boundaries(split) if bounded else None,
                exact=exact,
                period=corpus.vocab.period,
                rank=processes.rank,
                world=processes.world,
            )

        self.train, self.valid = streams("train", exact=False), streams("valid", exact=True)
        self.total = max(1, round(config.epochs * self.train.segments))
        guided, scheduled = _guided(config, corpus), self.model.has_scheduler
        self.objective = Objective(config, guided, self.train.segments) if scheduled else None
        if config.budget:
            self._check_budget(config.budget)
        self.step = 0
        self.state: Tensor | None = None
        self.layers = 2 if config.unit == "crnn" else config.layers
        self.epoch_tally, self.recent = Tally(self.layers), Tally(self.layers)
        self.best: list[float] | None = None
        self.untrained = math.log(max(2, len(corpus.vocab)))  # the loss of a model that has learnt nothing
        self.lowest = self.untrained  # training loss logged so far
        self.unfinished = False  # what follows the current step (rows, evaluation, best) is not done
        self.stop_signal: int | None = None
        self._locked = False

    @property
    def epoch(self) -> float:
        return self.step / self.train.segments

    def run(self) -> None:
        """Train to the end. Raises Interrupted, after saving, on SIGINT or SIGTERM.

        The run folder is locked meanwhile: a second trainer would overwrite its files.
        """
        with self.locked():
            try:
                if self.processes.first:
                    # With `unfinished`, the rows of this step are logged again.
                    _forget_rows_after(self.folder / "metrics.jsonl", self.step - self.unfinished)
                with self._signals(), _board(self.folder if self.processes.first else None) as self.board:
                    self._loop()
            except OSError as error:  # everything but `last` on a full disk; checkpoint.write reports its own errors
                saved = self.folder / "last.safetensors"
                if self.processes.world == 1 and self.step:
                    self.save("last")
                advice = (
                    f"free some space and continue with --resume {self.folder}"
                    if saved.exists()
                    else "there is no checkpoint yet: free some space and start again"
                )
                place = os.fsdecode(error.filename or self.folder)
                raise VcdeployError(f"could not write {place}: {error.strerror or error}; {advice}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run folder, unless this trainer has done so; raises if another process has it."""
        if self._locked or not self.processes.first:
            yield
            return
        with _locked(self.folder):
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    def _loop(self) -> None:
        self._clock = time.perf_counter(), self.step
        if self.unfinished:
            self._follow_schedules(self.step - 1)
            self._finish_step()
        while self.step < self.total:
            self._step()
            self.unfinished = True  # for the checkpoint of an error below
            stopped = self._finish_step()
            self.on_step(self.step)
            if stopped and self.step < self.total:
                raise Interrupted(stopped)

    def _finish_step(self) -> int:
        """Log, evaluate and save what is due after a step; returns the signal that was received, 0 for none."""
        end = self.step % self.train.segments == 0 or self.step == self.total
        log = self.step % LOG_EVERY == 0 or end
        if log:
            since, step = self._clock
            elapsed, tokens = time.perf_counter() - since, (self.step - step) * self.config.batch * self.config.bptt
            speed = {"tokens_per_second": tokens / elapsed} if tokens else {}  # none in this process if unfinished
            self._check_course(self._emit("step", self.recent, **speed)["loss"])
        if end:
            self._end_epoch()
        # From here on nothing can fail but saving `last`: an error before leaves the sums as they were.
        self.unfinished = False
        if log:
            self.recent = Tally(self.layers)
            self._clock = time.perf_counter(), self.step
        if end:
            self.epoch_tally = Tally(self.layers)
        stopped = self._agreed_signal()
        if end or stopped or self.step % self.config.save_every == 0:
            self.save("last")
        return stopped

    def _check_course(self, loss: float) -> None:
        """Stop a diverged run before its checkpoint replaces a good one."""
        self.lowest = min(self.lowest, loss)
        times, more = DIVERGED
        if loss > max(times * self.lowest + more, (self.lowest + self.untrained) / 2):
            raise VcdeployError(
                f"training diverged: the loss was {self.lowest:.3f} and is {loss:.4g} at step {self.step} (epoch "
                f"{self.epoch:.2f}). Start again with a lower --lr (it peaks at {self.config.peak_lr:.2g}) or "
                f"--sharpness-end ({self.config.sharpness_end:g}). Earlier checkpoints are kept in {self.folder}"
            )

    def _check_budget(self, budget: float) -> None:
        """Raise if the budget is below the cost of m = 0, which is not zero because the mask reaches past m·D."""
        least = active_squares(self.model, torch.zeros(1), self._sharpness(self.total - 1)).item() ** 0.5
        if least >= budget * self.config.dim:
            raise VcdeployError(
                f"--budget {budget:g} cannot be met: at the sharpness this run ends with, "
                f"{self._sharpness(self.total - 1):g}, the mask covers {least:.0f} of {self.config.dim} dimensions "
                f"even at m = 0. Raise the sharpness further or sooner (--sharpness-end, --sharpness-every), or "
                f"use a larger --dim or --budget"
            )

    def _sharpness(self, step: int) -> float:
        config = self.config
        how = (config.sharpness_start, config.sharpness_growth, config.sharpness_end)
        every = config.sharpness_every or schedule.growth_interval(self.train.segments, self.total, *how)
        return schedule.sharpness(step, every, *how)

    def _follow_schedules(self, step: int) -> None:
        config = self.config
        self.model.sharpness = self._sharpness(step)
        rate = schedule.learning_rate(step, self.total, config.peak_lr, config.warmup, config.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["multiple"]

    def _step(self) -> None:
        config, k = self.config, self.step % self.train.segments
        self._follow_schedules(self.step)
        tokens, targets, boundaries = (
            None if each is None else each.to(self.processes.device) for each in self.train.segment(k)
        )
        assert tokens is not None and targets is not None
        if k == 0:
            self.state = None
        elif self.state is not None:
            fresh = self.train.restarting(k, config.restart).to(self.processes.device)
            self.state = self.state * ~fresh.unsqueeze(-1)
        logits, state, m = self.model(tokens, self.state, boundaries)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        objective = loss + self.objective(logits, m, tokens, boundaries) if self.objective else loss
        if not math.isfinite(objective.item()):
            raise VcdeployError(
                f"the loss is {objective.item()} at step {self.step} (epoch {self.epoch:.2f}): lower --lr or --clip. "
                f"Earlier checkpoints are kept in {self.folder}"
            )
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()
        self.processes.average(self.model.parameters())
        for group in self.optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], config.clip)
        self.optimizer.step()
        self.state = state.detach()
        self.step += 1
        self._observe(loss.item() * targets.numel(), m, logits)

    def _observe(self, nats: float, m: Tensor, logits: Tensor) -> None:
        flat = m.detach().flatten(0, 1)
        spent = active_squares(self.model, flat)
        for tally in (self.epoch_tally, self.recent):
            tally.add(nats, flat, spent)
        if self.objective:
            level = entropy(logits) if self.config.setting == "entropy" else torch.zeros(1)
            self.objective.observe(*self._means(flat, self._final_squares(flat), level))

    def _final_squares(self, m: Tensor) -> Tensor:
        """a²/D² at the final sharpness, so that m need not move as the mask sharpens to keep the budget."""
        return active_squares(self.model, m, self._sharpness(self.total - 1)) / self.config.dim**2

    def _means(self, *quantities: Tensor) -> list[float]:
        """The mean of each quantity over all processes."""
        sums = [[each.double().sum().item(), each.numel()] for each in quantities]
        totals = self.processes.add_up(torch.tensor(sums, dtype=torch.float64))
        return [total / count for total, count in totals.tolist()]

    def _end_epoch(self) -> None:
        self._emit("train", self.epoch_tally)
        tally, m = evaluate(self.model, self.valid)
        row = self._emit("valid", tally)
        # Rank by: budget met, then sharper mask, then fewer bits.
        missed = 0.0
        if self.config.budget and abs(row["compute"] / self.config.budget**2 - 1) > BUDGET_TOLERANCE:
            missed = 1.0
        rank = [missed, -self.model.sharpness, row["bits"]]
        if self.best is None or rank < self.best:
            before, self.best = self.best, rank
            try:
                self.save("best")
            except BaseException:
                self.best = before
                raise
        if self.objective:
            fractions = torch.from_numpy(m)
            self.objective.calibrate(*self._means(fractions, self._final_squares(fractions)))

    def _emit(self, split: str, tally: Tally, **more: float) -> Row:
        """Log a row of metrics, reduced over all processes: to the file, to TensorBoard and to on_row."""
        tally.sums = self.processes.add_up(tally.sums)
        row = {"step": self.step, "epoch": round(self.epoch, 4), "split": split}
        row |= tally.summary(self.config.unit, self.config.dim, self.corpus.vocab)
        row |= {"sharpness": self.model.sharpness, "lr": self.optimizer.param_groups[0]["lr"]} | more
        if self.objective:
            row["weight"] = self.objective.weight
        if self.processes.first:
            with open(self.folder / "metrics.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())  # a checkpoint on the disk has all its rows there
            if self.board:
                for name, value in row.items():
                    if name not in ("step", "split"):
                        self.board.add_scalar(f"{split}/{name}", value, self.step)
            self.on_row(row)
        return row

    # Checkpoints

    def save(self, name: str) -> None:
        """Save `last` (everything needed to resume) or `best` (only the model). Every process must call it."""
        config, training = self.config, self._training_state() if name == "last" else {}
        if not self.processes.first:
            return
        described = {
            "unit": config.unit,
            "dim": config.dim,
            "layers": config.layers,
            "sharpness": self.model.sharpness,
            "epsilon": config.epsilon,
            "precision": "f32",
            "kind": self.corpus.kind,
            "buffer": self.corpus.vocab.buffer,
            "dropout": config.dropout,
            "corpus": config.corpus,
        }
        progress = {
            "step": self.step,
            "epoch": self.epoch,
            "best": self.best,
            "config": config.to_json(),
            "objective": self.objective.state() if self.objective else {},
            "corpus": fingerprint(self.corpus),
            "unfinished": self.unfinished,
        }
        # Only `last` can be resumed: if `best` cannot be saved, run() saves `last`.
        checkpoint.write(
            self.folder / f"{name}.safetensors",
            checkpoint.Checkpoint(described, self.corpus.vocab, self.model.state_dict(), training, progress),
            rescue=name == "last",
        )

    def _training_state(self) -> dict[str, Tensor]:
        gather = self.processes.gather
        tensors = {
            "rng": gather(torch.get_rng_state().unsqueeze(0).to(self.processes.device), 0),
            "epoch_tally": self.processes.add_up(self.epoch_tally.sums.clone()),
            "recent": self.processes.add_up(self.recent.sums.clone()),
        }
        if self.state is not None:
            tensors["state"] = gather(self.state, 1)
        if self.processes.device.type == "cuda":
            rng = torch.cuda.get_rng_state(self.processes.device)
            tensors["rng_cuda"] = gather(rng.unsqueeze(0).to(self.processes.device), 0)
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"adam.{name}.{key}"] = value
        return tensors

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Resume from `saved`, a `last` checkpoint."""
        progress, tensors = saved.progress, saved.training
        if (then := progress.get("corpus")) != fingerprint(self.corpus):
            raise VcdeployError(
                f"the corpus {self.config.corpus} is not what this run was trained on "
                f"(length and checksum now {fingerprint(self.corpus)}, then {str(then)[:80]}): restore the old "
                f"text, or start a new run"
            )
        resume.check(saved, self)
        processes = self.processes
        self.model.load_state_dict(saved.model)
        self.step, self.best = progress["step"], progress["best"]
        self.unfinished = bool(progress.get("unfinished", False))
        if "state" in tensors:
            self.state = tensors["state"][:, self.train.mine].to(processes.device)
        if processes.first:  # sums over all processes: only one may continue them
            self.epoch_tally.sums, self.recent.sums = tensors["epoch_tally"], tensors["recent"]
        if len(tensors["rng"]) == processes.world:
            torch.set_rng_state(tensors["rng"][processes.rank])
            if "rng_cuda" in tensors and processes.device.type == "cuda":
                torch.cuda.set_rng_state(tensors["rng_cuda"][processes.rank], processes.device)
        for name, parameter in self.model.named_parameters():
            prefix = f"adam.{name}."
            moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            self.optimizer.state[parameter] = {key: value.to(processes.device) for key, value in moments.items()}
        if self.objective:
            self.objective.restore(progress["objective"])

    # Signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run after the current step; a second signal ends it immediately."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.stop_signal is not None:
                raise KeyboardInterrupt
            self.stop_signal = number

        before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _agreed_signal(self) -> int:
        """The signal received by any process, 0 for none, so that all stop at the same step."""
        mine = torch.tensor([float(self.stop_signal or 0)])
        if self.processes.world == 1:
            return int(mine)
        received = self.processes.gather(mine.to(self.processes.device), 0)
        return int(received.max())


def _groups(model: LanguageModel, scheduler_rate: float) -> list[dict[str, Any]]:
    """Parameter groups for Adam, schedulers in their own group. `multiple` scales the learning rate."""
    return [{"params": each["params"], "multiple": each["lr"]} for each in parameter_groups(model, 1.0, scheduler_rate)]


def fingerprint(corpus: Corpus) -> str:
    """Length and checksum of the training split."""
    ids = np.ascontiguousarray(corpus.splits["train"])
    return f"{len(ids)}-{zlib.crc32(ids.tobytes()):08x}"


def _guided(config: TrainConfig, corpus: Corpus) -> Tensor | None:
    """bool [vocab]: the symbols of --guide; None without --guide or with `--guide boundaries`."""
    if not config.guide or config.guide == "boundaries":
        return None
    wanted = config.guide.split() if corpus.kind == "music" else list(config.guide)
    unknown = [symbol for symbol in wanted if symbol not in corpus.vocab.symbols]
    if unknown:
        raise VcdeployError(
            f"--guide names {unknown[0]!r}, which is not a symbol of {corpus.name}; its symbols: "
            f"{' '.join(corpus.vocab.symbols)}"
        )
    return torch.tensor([symbol in wanted for symbol in corpus.vocab.symbols])


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder; the system unlocks it when the process ends, however it does."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise VcdeployError(
                f"another process is training in {folder}: wait for it or stop it, or give another --out"
            ) from error
        except OSError as error:
            warnings.warn(
                f"{folder} cannot be locked ({error.strerror}): make sure that no other process trains there",
                stacklevel=2,
            )
        yield
    finally:
        os.close(descriptor)


def _forget_rows_after(path: Path, step: int) -> None:
    """Drop the rows a killed run logged after its last checkpoint; they will be logged again.

    A line that is no row is dropped too: a full disk or a power cut can leave part of the last one.
    """
    if not path.exists():
        return
    old = path.read_bytes()
    kept = [line for line in old.splitlines(keepends=True) if line.endswith(b"\n") and _step_of(line) <= step]
    if (new := b"".join(kept)) != old:
        write_atomically(path, new)


def _step_of(line: bytes) -> float:
    """The step of a row of metrics; infinity if the line is none."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return math.inf
    return step if isinstance(step, int) else math.inf


@contextmanager
def _board(folder: Path | None) -> Iterator[Any]:
    """A TensorBoard writer if tensorboard is installed and folder is given, else None."""
    if folder is None:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        # An error in TensorBoard's own thread is raised again where the next row is written.
        if not type(failed.thread).__module__.startswith("tensorboard."):
            before(failed)

    threading.excepthook = hook
    try:
        with SummaryWriter(folder / "tensorboard") as writer:
            yield writer
    finally:
        threading.excepthook = before
