"""More than one process: `torchrun … -m vcdeploy train` splits the batch and adds gradients and sums up.

One process is the case of world = 1: every function here then returns what it was given.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """This process's place among all: rank of world, and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over the processes."""
        return model if self.world == 1 else DistributedDataParallel(model)

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
    """The processes torchrun started (gloo on CPUs, NCCL on GPUs), or this one alone."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if world == 1:
        yield Processes(0, 1, device)
        return
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(rank, world, device)
    finally:
        dist.destroy_process_group()
