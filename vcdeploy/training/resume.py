"""Checks everything that resuming takes from a checkpoint, before a run continues from it.

A checksum detects damage, but a file may be consistent and still wrong: written by another program, edited, or hostile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vcdeploy.errors import VcdeployError
from vcdeploy.format.reader import brief
from vcdeploy.spec import UNITS
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.training.config import TrainConfig

if TYPE_CHECKING:
    from vcdeploy.training.loop import Trainer
    from vcdeploy.training.objective import Objective, Steering

SAME = ("unit", "dim", "layers", "dropout", "epsilon", "corpus")  # in the description and in the settings
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of Adam


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise VcdeployError(
            f"the checkpoint can't be resumed: {brief(what)}. It was damaged or edited; resume from another copy of "
            "last.safetensors, or start a new run"
        )


def _number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def settings(saved: Checkpoint) -> TrainConfig:
    """The settings of the saved run. They must fit its weights, so that no larger network is built for them."""
    values = saved.progress.get("config")
    _require(isinstance(values, dict), "it has no training settings")
    assert isinstance(values, dict)
    for name, value in values.items():
        _require(type(value) is not float or math.isfinite(value), f"its setting {name} is {value}")
    config = TrainConfig.from_json(values)
    _require(config.unit in UNITS, f"it has the unit {config.unit!r}")
    for name in SAME:
        _require(
            saved.config.get(name) == getattr(config, name),
            f"its model has {name} {saved.config.get(name)!r}, its settings {getattr(config, name)!r}",
        )
    embedding = saved.model.get("embedding.weight", torch.empty(0))
    _require(
        tuple(embedding.shape) == (len(saved.vocab), config.dim) and config.layers <= len(saved.model),
        f"its weights are not of {config.layers} layers of {config.dim} dimensions for {len(saved.vocab)} symbols",
    )
    return config


def check(saved: Checkpoint, trainer: Trainer) -> None:
    """Raise unless every value that `Trainer.restore` uses has the right type, shape and range."""
    progress, step = saved.progress, saved.progress.get("step", -1)
    _require(type(step) is int and 0 <= step <= trainer.total, f"its step is {step!r}, not 0 to {trainer.total}")
    best = progress.get("best", ())
    ranked = isinstance(best, list) and len(best) == 3 and all(map(_number, best))
    _require(best is None or ranked, f"its best evaluation is {best!r}, not three numbers")
    _require(saved.vocab == trainer.corpus.vocab, "its vocabulary is not that of the corpus")
    if trainer.objective:
        _check_objective(progress.get("objective"), trainer.objective)
    _check_weights(saved.model, dict(trainer.model.named_parameters()))
    _check_training(saved.training, trainer, step)


def _check_objective(state: Any, objective: Objective) -> None:
    _require(isinstance(state, dict) and state.keys() == objective.state().keys(), "its objective is incomplete")
    _require(_number(state["weight"]), f"the weight of its penalty is {state['weight']!r}")
    entropy = state["mean_entropy"]
    _require(entropy is None or _number(entropy, 0), f"its mean entropy is {entropy!r}")
    if objective.steering:
        _check_steering(state["steering"], objective.steering)


def _check_steering(state: Any, now: Steering) -> None:
    _require(isinstance(state, dict) and state.keys() == vars(now).keys(), "the state of its budget is incomplete")
    patience = now.PATIENCE
    fits = {
        "goal": state["goal"] == now.goal,
        "slowly": state["slowly"] == now.slowly,
        "surplus": _number(state["surplus"], 0),
        "spent": state["spent"] is None or _number(state["spent"], 0),
        "spent_lately": state["spent_lately"] is None or _number(state["spent_lately"], 0),
        "integral": _number(state["integral"], now.LOWEST, now.HIGHEST),
        "too_little": type(state["too_little"]) is int and 0 <= state["too_little"] <= 2 * patience,
        "lifts": type(state["lifts"]) is int and 0 <= state["lifts"] <= patience,
    }
    for name, holds in fits.items():
        _require(holds, f"{name} of its budget is {state[name]!r}")


def _check_weights(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    _require(weights.keys() == wanted.keys(), f"its weights are {sorted(weights)}, not {sorted(wanted)}")
    for name, each in wanted.items():
        _check_tensor(name, weights[name], each.shape, each.dtype)


def _check_training(tensors: Mapping[str, Tensor], trainer: Trainer, step: int) -> None:
    """The tensors besides the weights: Adam's moments, the carried state, sums and random states."""
    parameters = dict(trainer.model.named_parameters())
    wanted = {f"adam.{name}.{key}" for name in parameters for key in MOMENTS} | {"rng", "epoch_tally", "recent"}
    missing, unknown = wanted - tensors.keys(), tensors.keys() - wanted - {"state", "rng_cuda"}
    _require(not missing, f"it lacks {min(missing, default='')}")
    _require(not unknown, f"it has an unknown {min(unknown, default='')}")
    for name, parameter in parameters.items():
        for key in ("exp_avg", "exp_avg_sq"):
            _check_tensor(f"adam.{name}.{key}", tensors[f"adam.{name}.{key}"], parameter.shape, parameter.dtype)
        _require(bool((tensors[f"adam.{name}.exp_avg_sq"] >= 0).all()), f"adam.{name}.exp_avg_sq is negative")
        count = tensors[f"adam.{name}.step"]
        _check_tensor(f"adam.{name}.step", count, (), torch.float32)
        _require(0 <= count.item() <= step, f"adam.{name}.step is {count.item()} at step {step}")
    for name in ("epoch_tally", "recent"):
        _check_tensor(name, tensors[name], trainer.recent.sums.shape, torch.float64)
        _require(bool((tensors[name] >= 0).all()), f"{name} is negative")
    if "state" in tensors:
        rows = UNITS[trainer.config.unit].state_rows * trainer.config.layers
        _check_tensor("state", tensors["state"], (rows, trainer.config.batch, trainer.config.dim), torch.float32)
    for name in ("rng", "rng_cuda"):
        if name in tensors:
            rng = tensors[name]
            _require(rng.dtype == torch.uint8 and rng.dim() == 2, f"{name} is {rng.dtype} {list(rng.shape)}")
    rng = tensors["rng"]
    _require(rng.shape[1] == len(torch.get_rng_state()), f"rng is {list(rng.shape)}")
    try:
        for each in rng:
            torch.Generator().set_state(each.clone())  # set_state crashes on a tensor that is not aligned
    except RuntimeError as error:
        _require(False, f"rng is not a random state ({error})")


def _check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _require(
        tuple(tensor.shape) == tuple(shape) and tensor.dtype == dtype,
        f"{name} is {tensor.dtype} {list(tensor.shape)}, not {dtype} {list(shape)}",
    )
    _require(not dtype.is_floating_point or bool(tensor.isfinite().all()), f"{name} has NaN or infinity")
