"""Streams: no symbol lost or repeated, and the same for one process as for several."""

import numpy as np
import pytest
import torch

from vcdeploy.errors import VcdeployError
from vcdeploy.training.streams import Streams

IDS = np.arange(103, dtype=np.uint8)


def whole(streams: Streams, part: int) -> torch.Tensor:
    pieces = [streams.segment(k)[part] for k in range(streams.segments)]
    return torch.cat([each for each in pieces if each is not None])


def test_training_streams_are_contiguous_and_shifted_by_one() -> None:
    streams = Streams(IDS, 4, 5)
    inputs, targets = whole(streams, 0), whole(streams, 1)
    assert inputs.shape == (25, 4)
    assert torch.equal(targets, inputs + 1)
    assert inputs[0].tolist() == [0, 25, 50, 75]
    assert (inputs[1:] - inputs[:-1] == 1).all()


@pytest.mark.parametrize(("batch", "length"), [(1, 7), (4, 5), (10, 100), (103, 3), (32, 1)])
def test_exact_streams_predict_every_symbol_once(batch: int, length: int) -> None:
    targets = whole(Streams(IDS, batch, length, exact=True), 1)
    real = targets[targets >= 0]
    assert sorted(real.tolist()) == list(range(1, 103))


def test_exact_streams_keep_the_order_of_the_text() -> None:
    streams = Streams(IDS, 4, 5, exact=True)
    inputs = whole(streams, 0).T.flatten()[: streams.pairs]
    assert inputs.tolist() == list(range(102))


def test_boundaries_follow_the_inputs() -> None:
    streams = Streams(IDS, 4, 5, boundaries=IDS % 7 == 0)
    assert torch.equal(whole(streams, 2).bool(), whole(streams, 0) % 7 == 0)


@pytest.mark.parametrize("exact", [False, True])
def test_processes_share_the_streams(exact: bool) -> None:
    together = whole(Streams(IDS, 4, 5, exact=exact), 1)
    parts = [whole(Streams(IDS, 4, 5, exact=exact, rank=rank, world=2), 1) for rank in (0, 1)]
    assert torch.equal(torch.cat(parts, 1), together)


def test_too_little_text_and_invalid_fractions_are_errors() -> None:
    with pytest.raises(VcdeployError, match="103 symbols, too few for 32 streams"):
        Streams(IDS, 32, 5)
    with pytest.raises(VcdeployError, match=r"--batch 3 .* multiple of 2"):
        Streams(IDS, 3, 5, rank=0, world=2)


@pytest.mark.parametrize("exact", [False, True])
def test_streams_of_bits_begin_with_a_character(exact: bool) -> None:
    streams = Streams(np.arange(1000), 4, 10, exact=exact, period=16)
    starts = streams.segment(0)[0][0]
    assert (starts % 16 == 0).all()
    if exact:
        targets = whole(streams, 1)
        assert sorted(targets[targets >= 0].tolist()) == list(range(1, 1000))


def test_streams_restart_in_turn() -> None:
    streams = Streams(np.zeros(5000), 8, 5)
    starts = torch.stack([streams.restarting(k, 20) for k in range(100)])  # [segments, streams]
    for stream in starts.T:
        (at,) = stream.nonzero(as_tuple=True)
        assert len(at) == 5
        assert (at.diff() == 20).all()
    assert starts.sum(1).max() == 1  # one at a time; the other streams continue
    parts = [Streams(np.zeros(5000), 8, 5, rank=rank, world=2).restarting(10, 20) for rank in (0, 1)]
    assert torch.equal(torch.cat(parts), starts[10])


def test_streams_of_bits_restart_with_a_character() -> None:
    streams = Streams(np.zeros(5000), 4, 10, period=16)  # 10-bit segments start with a character every 80 bits
    starts = [k for k in range(200) if streams.restarting(k, 3).any()]
    assert starts
    assert all(10 * k % 16 == 0 for k in starts)
