"""Configuration of a training run. It validates itself, with messages that name the options."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.spec import MOST_DIMENSIONS, UNITS

MOST_LAYERS, MOST_EPOCHS = 64, 1_000_000
RECIPE = 1  # raised by a change that may change the models trained with the same settings, beyond rounding
ADDED = ("lowercase",)  # settings that checkpoints of version 0.2 and earlier lack: they had today's default
RENAMED = {"initial_share": "initial_m"}  # setting names in checkpoints of version 0.1


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run, named after the options of `vcdeploy train`."""

    corpus: str = "demo"
    kind: str | None = None
    buffer: int = 0
    lowercase: float = 0.0
    # the model
    unit: str = "vcgru"
    dim: int = 256
    layers: int = 1
    dropout: float = 0.0
    epsilon: float = 1e-3
    initial_m: float = 0.5
    # compute
    setting: str = "learn"
    target: float = 0.4
    weight: float | None = None
    norm: str = "l1"
    above_only: bool = False
    guide: str | None = None
    guide_target: float = 0.8
    budget: float | None = None
    # the sharpness of the mask
    sharpness_start: float = 0.1
    sharpness_growth: float = 0.1
    sharpness_end: float = 1.0
    sharpness_every: int | None = None
    # optimisation
    epochs: float = 4.0
    batch: int = 32
    bptt: int = 50
    restart: int = 100
    lr: float | None = None
    scheduler_rate: float = 0.2
    warmup: int = 200
    decay: str = "cosine"
    clip: float = 1.0
    seed: int = 0
    save_every: int = 1000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise BadValue(f"--{name.replace('_', '-')} must be a finite number, not {value}")
        rules = [
            (self.kind in (None, "text", "bits", "music"), "--kind", "text, bits or music"),
            (self.buffer in (0, 8, 24), "--buffer", "0, 8 or 24"),
            (0 <= self.lowercase <= 1, "--lowercase", "from 0 to 1"),
            (self.lowercase == 0 or self.kind in (None, "text"), "--lowercase", "0 with --kind bits or music"),
            (1 <= self.dim <= MOST_DIMENSIONS, "--dim", f"from 1 to {MOST_DIMENSIONS}"),
            (1 <= self.layers <= MOST_LAYERS, "--layers", f"from 1 to {MOST_LAYERS}"),
            (
                self.layers == 1 or self.unit != "crnn",
                "--layers",
                "1 with --unit crnn (one fast, one slow layer)",
            ),
            (0 <= self.dropout < 1, "--dropout", "from 0 to below 1"),
            (0 < self.epsilon < 0.5, "--epsilon", "above 0 and below 0.5"),
            (0 < self.initial_m < 1, "--initial-m", "between 0 and 1"),
            (self.setting in ("learn", "guide", "entropy"), "--setting", "learn, guide or entropy"),
            (0 < self.target < 1, "--target", "between 0 and 1"),
            (self.weight is None or self.weight >= 0, "--weight", "0 or more"),
            (self.norm in ("l1", "l2"), "--norm", "l1 or l2"),
            (0 <= self.guide_target <= 1, "--guide-target", "from 0 to 1"),
            (self.budget is None or 0 < self.budget < 1, "--budget", "between 0 and 1"),
            (self.sharpness_start > 0, "--sharpness-start", "above 0"),
            (self.sharpness_growth >= 0, "--sharpness-growth", "0 or more"),
            (self.sharpness_end >= self.sharpness_start, "--sharpness-end", "at least --sharpness-start"),
            (
                self.sharpness_every is None or self.sharpness_every >= 1,
                "--sharpness-every",
                "at least 1 step",
            ),
            (0 < self.epochs <= MOST_EPOCHS, "--epochs", f"above 0 and at most {MOST_EPOCHS}"),
            (self.batch >= 1, "--batch", "at least 1"),
            (self.bptt >= 1, "--bptt", "at least 1"),
            (self.restart >= 1, "--restart", "at least 1"),
            (self.lr is None or self.lr > 0, "--lr", "above 0"),
            (self.scheduler_rate > 0, "--scheduler-rate", "above 0"),
            (self.warmup >= 0, "--warmup", "0 or more"),
            (self.decay in ("cosine", "linear", "none"), "--decay", "cosine, linear or none"),
            (self.clip > 0, "--clip", "above 0"),
            (0 <= self.seed < 2**63, "--seed", "from 0 to 2^63 - 1"),
            (self.save_every >= 1, "--save-every", "at least 1"),
        ]
        for holds, flag, wanted in rules:
            if not holds:
                value = getattr(self, flag[2:].replace("-", "_"))
                raise BadValue(f"{flag} must be {wanted}, not {value}")
        if self.setting == "guide" and not self.guide:
            raise BadValue("--setting guide needs --guide: the symbols with a separate target, or `boundaries`")
        if self.budget and (self.setting != "learn" or self.weight is not None):
            raise BadValue("--budget adjusts the weight itself: omit --weight, and use --setting learn")
        if self.above_only and self.setting == "learn" and self.weight is None:
            raise BadValue("--above-only has no effect without a fixed weight: set --weight as well")
        if self.guide and self.setting != "guide":
            raise BadValue(f"--guide has no effect in --setting {self.setting}: use --setting guide")

    def check_memory(self, available: int) -> None:
        """Raise if the weights, their gradients and the two moments of Adam need more than `available` bytes."""
        unit = UNITS[self.unit]
        needed = 4 * 4 * self.layers * 2 * len(unit.gates) * self.dim**2
        if needed > available:
            raise BadValue(
                f"--dim {self.dim} with --layers {self.layers} takes {needed / 1e9:,.0f} GB to train, and there are "
                f"{available / 1e9:,.0f} GB of memory: use a smaller --dim"
            )

    @property
    def peak_lr(self) -> float:
        """--lr; by default 0.002, and lower for large states, where 0.002 diverges as the mask sharpens."""
        return self.lr or 2e-3 * min(1.0, (256 / self.dim) ** 0.5)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainConfig":
        """Read the settings in a checkpoint or a result; a missing or unknown entry is an error."""
        defaults = {name: getattr(cls, name) for name in ADDED}
        values = defaults | {RENAMED.get(name, name): value for name, value in values.items()}
        known = {field.name: field.type for field in fields(cls)}
        wrong = sorted(known.keys() ^ values.keys())
        if wrong:
            raise VcdeployError(
                f"the training settings in the checkpoint differ from this version's in: {', '.join(wrong)}"
            )
        for name, kind in known.items():
            allowed = get_args(kind) or (kind,)
            value = values[name]
            fits = isinstance(value, (*allowed, int) if float in allowed else allowed)
            if not fits or (isinstance(value, bool) and bool not in allowed):  # bool is a subclass of int
                raise VcdeployError(f"the checkpoint's training setting {name} is {str(value)[:80]!r}, not {kind}")
        return cls(**values)
