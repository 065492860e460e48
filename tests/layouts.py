"""Inputs of the ops with unusual strides, and the ways to compile the ops on them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch
from cases import mask_of, small
from torch import Tensor, nn

from vcdeploy.kernels import OPS

DTYPES = [torch.float32, torch.float64]


def transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def sliced(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


def expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {"transposed": transposed, "sliced": sliced, "expanded": expanded}


def inputs_of(unit: str, dtype: torch.dtype, layout: str) -> list[Tensor]:
    plain = small(unit, 3, 0 if layout == "empty" else 2, 7).inputs(dtype)
    if layout == "empty":
        return plain
    made = [LAYOUTS[layout](each) for each in plain]
    assert not any(each.is_contiguous() for each in made[:4])
    return made


class Several(nn.Module):
    """Runs one unit per case. The elementwise operation after the op is what reads its strides."""

    def __init__(self, units: Sequence[str]) -> None:
        super().__init__()
        self.units = tuple(units)

    def forward(self, cases: list[list[Tensor]]) -> list[Tensor]:
        return [
            each.transpose(0, -1) + 1
            for unit, inputs in zip(self.units, cases, strict=True)
            for each in OPS[unit](*inputs, *mask_of(unit))
        ]


def exported(network: Several, cases: list[list[Tensor]], folder: Path) -> Iterator[list[Tensor]]:
    """The outputs of torch.export's program and of AOTInductor's library."""
    program = torch.export.export(network, (cases,))
    yield program.module()(cases)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "all.pt2"))
    yield torch._inductor.aoti_load_package(package)(cases)


def with_gradients(run: Callable[..., list[Tensor]], cases: list[list[Tensor]]) -> list[Tensor]:
    leaves = [[each.detach().requires_grad_() for each in inputs] for inputs in cases]
    outputs = run(leaves)
    return [*outputs, *torch.autograd.grad([each.sum() for each in outputs], list(chain(*leaves)))]
