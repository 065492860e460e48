"""Multi-process training: `torchrun … -m vcdeploy train` splits the batch and reduces gradients and metrics.

A single process has world = 1; every function here is then a no-op.
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
    """This process's rank, the number of processes (world) and the device."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    # DistributedDataParallel is not used. It overlaps communication with the backward pass, but the gradient of a
    # recurrent weight is complete only at the end of that pass. It also holds a reference to the process group: see
    # processes().

    def agree(self, model: nn.Module) -> None:
        """Copy the weights of the first process to all others."""
        if self.world > 1:
            for weight in model.parameters():
                dist.broadcast(weight.detach(), 0)

    def average(self, weights: Iterable[nn.Parameter]) -> None:
        """Average the gradients over all processes, in place, in a single all-reduce."""
        if self.world == 1:
            return
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        together = torch.cat([each.flatten() for each in gradients]) / self.world
        dist.all_reduce(together)
        for gradient, mean in zip(gradients, together.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def add_up(self, sums: Tensor) -> Tensor:
        """Sum over all processes, on the CPU."""
        if self.world > 1:
            sums = sums.to(self.device)
            dist.all_reduce(sums)
        return sums.cpu()

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """Concatenate the parts of all processes along dim, in rank order, on the CPU."""
        if self.world == 1:
            return part.cpu()
        parts = [torch.empty_like(part) for _ in range(self.world)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim).cpu()


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes started by torchrun (gloo on CPUs, NCCL on GPUs), or a single one.

    Only torch.distributed may hold a reference to the process group. A gloo thread releases its tensors after the
    caller has returned, and takes the GIL to do so. destroy_process_group waits for these threads without holding the
    GIL, provided it drops the last reference to the group. With another reference left, the threads are still running
    at interpreter exit, which unwinds a thread waiting for the GIL through noexcept destructors: "terminate called
    without an active exception" (pytorch/pytorch#190489). DistributedDataParallel, if it holds the last reference,
    waits for the threads while holding the GIL.
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
    # The functions of this module bind the current group as a default argument on import, and the optimizer imports it.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(rank, world, device)
    finally:
        dist.destroy_process_group()
