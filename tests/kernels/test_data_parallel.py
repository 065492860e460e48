"""Units in DistributedDataParallel: two processes with half a batch each get the gradients of the whole batch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vcdeploy.units import VCGRU, VCLSTM, VCRNN

UNITS = {"vcrnn": VCRNN, "vcgru": VCGRU, "vclstm": VCLSTM}

# The script ends with os._exit: gloo threads that DistributedDataParallel keeps alive may crash at interpreter exit
# (see vcdeploy/training/distributed.py).
SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from vcdeploy import units

rank, folder, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
saved = torch.load(f"{folder}/case.pt")
unit = getattr(units, name)(24, num_layers=2).double()
unit.load_state_dict(saved["weights"])
wrapped = DistributedDataParallel(unit)
y, _, m = wrapped(saved["x"][:, rank::2], return_m=True)
(y.square().mean() + m.mean()).backward()
torch.save([each.grad for each in unit.parameters()], f"{folder}/{rank}.pt")
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("name", UNITS)
def test_gradients_are_those_of_the_whole_batch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    unit = UNITS[name](24, num_layers=2).double()
    x = torch.randn(9, 6, 24, dtype=torch.float64)  # T, B, D
    torch.save({"weights": unit.state_dict(), "x": x}, tmp_path / "case.pt")
    command = [sys.executable, "-c", SCRIPT]
    running = [
        subprocess.Popen([*command, str(rank), str(tmp_path), UNITS[name].__name__], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for each in running:
        _, said = each.communicate(timeout=120)
        assert each.returncode == 0, said
    y, _, m = unit(x, return_m=True)
    (y.square().mean() + m.mean()).backward()
    for rank in range(2):
        gradients: list[Tensor] = torch.load(tmp_path / f"{rank}.pt")
        for gradient, weight in zip(gradients, unit.parameters(), strict=True):
            assert weight.grad is not None
            torch.testing.assert_close(gradient, weight.grad, rtol=1e-9, atol=1e-12)
