"""Splits a long sequence into B parallel streams of segments, for truncated backpropagation."""

import math

import numpy as np
import torch
from torch import Tensor

from vcdeploy.errors import VcdeployError


def stream_bounds(batch: int, rank: int, world: int) -> slice:
    """The slice of the B streams that a process handles."""
    if batch % world:
        raise VcdeployError(f"--batch {batch} cannot be split across {world} processes: use a multiple of {world}")
    size = batch // world
    return slice(rank * size, (rank + 1) * size)


class Streams:
    """ids split into `batch` contiguous streams; segment k has inputs, targets and boundaries, [T, b] each.

    For training all streams have the same length, and a remainder shorter than a segment is dropped. With `exact` (for
    evaluation) every symbol but the first is a target exactly once; the padding at the end of the last streams has
    target -1. Every stream begins at a multiple of `period`, so that a model of bits starts from the zero state only
    where a character begins.
    """

    def __init__(
        self,
        ids: np.ndarray,
        batch: int,
        length: int,
        *,
        boundaries: np.ndarray | None = None,
        exact: bool = False,
        period: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        pairs = len(ids) - 1
        steps = -(-pairs // batch) if exact else pairs // batch
        steps = -(-steps // period) * period if exact else steps // period * period
        if pairs < 1 or (not exact and steps < length):
            raise VcdeployError(
                f"the corpus has {len(ids)} symbols, too few for {batch} streams of at least {length}: "
                f"lower --batch or --bptt, or give more text"
            )
        self.length, self.batch, self.period = length, batch, period
        self.mine = stream_bounds(batch, rank, world)
        self.pairs = pairs
        self.inputs = self._lay_out(ids[:-1], steps, batch, 0)
        self.targets = self._lay_out(ids[1:], steps, batch, -1)
        self.boundaries = None if boundaries is None else self._lay_out(boundaries[:-1], steps, batch, 0)
        self.segments = -(-steps // length) if exact else steps // length

    def _lay_out(self, values: np.ndarray, steps: int, batch: int, padding: int) -> np.ndarray:
        """values as [batch, steps], only the rows of this process."""
        short = steps * batch - len(values)
        if short > 0:
            values = np.concatenate([values.astype(np.int32), np.full(short, padding, np.int32)])
        return values[: steps * batch].reshape(batch, steps)[self.mine]

    def restarting(self, k: int, every: int) -> Tensor:
        """bool [b]: the streams that start segment k from a zero state; each does so every `every` segments, in turn.

        Inference starts from the zero state. Rarely updated dimensions keep their value for very long, so without
        restarts a model would come to rely on values from the beginning of training.
        """
        aligned = self.period // math.gcd(self.period, self.length)  # one segment in this many starts with a character
        turn, late = divmod(k, aligned)
        offsets = torch.arange(self.batch) * every // self.batch
        return ((turn + offsets) % every == 0)[self.mine] & (late == 0)

    def segment(self, k: int) -> tuple[Tensor, Tensor, Tensor | None]:
        def cut(values: np.ndarray) -> Tensor:
            part = values[:, k * self.length : (k + 1) * self.length].T
            return torch.from_numpy(np.ascontiguousarray(part, dtype=np.int64))

        return cut(self.inputs), cut(self.targets), None if self.boundaries is None else cut(self.boundaries)
