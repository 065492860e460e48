"""More than one process: `torchrun … -m vcdeploy train` splits the batch and adds gradients and sums up.

One process is the case of world = 1: every function here then returns what it was given.
"""

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """This process's place among all: rank of world, and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    # Not DistributedDataParallel. It overlaps sending with the backward pass, but the gradient of a recurrent weight is
    # complete only when that has walked the whole segment. And it refers to the process group: see processes().

    def agree(self, model: nn.Module) -> None:
        """Every process takes the weights of the first."""
        if self.world > 1:
            for weight in model.parameters():
                dist.broadcast(weight.detach(), 0)

    def average(self, weights: Iterable[nn.Parameter]) -> None:
        """The mean of every gradient over the processes, in place, all in one message."""
        if self.world == 1:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        together = torch.cat([each.flatten() for each in gradients]) / self.world
        dist.all_reduce(together)
        for gradient, mean in zip(gradients, together.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def add_up(self, sums: Tensor) -> Tensor:
        """The sum over all processes, on the CPU."""
        if self.world > 1:
            sums = sums.to(self.device)
            dist.all_reduce(sums)
        return sums.cpu()

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """Every process's part side by side along dim, in rank order, on the CPU."""
        if self.world == 1:
            return part.cpu()
        parts = [torch.empty_like(part) for _ in range(self.world)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim).cpu()


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes torchrun started (gloo on CPUs, NCCL on GPUs), or this one alone.

    Nothing but torch.distributed may refer to the group. A thread of gloo lets go of its tensors only after the caller
    has gone on, and takes Python's lock for that. destroy_process_group waits for these threads without the lock, if it
    drops the last reference to the group. With another one they are still there when Python ends, which unwinds a
    thread that wants the lock, through destructors that must not throw: "terminate called without an active exception"
    (pytorch/pytorch#190489). And DistributedDataParallel, where it has the last one, waits for them with the lock held.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if world == 1:
        yield Processes(0, 1, device)
        return
    if cuda:
        torch.cuda.set_device(device)
    # Its functions have the group of the moment of the import as a default, for good; the optimizer imports it.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(rank, world, device)
    finally:
        dist.destroy_process_group()
