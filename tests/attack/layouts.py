"""Attack the ops with strides: every unit, type and layout in opcheck, torch.export, torch.compile and AOTInductor.

    python tests/attack/layouts.py [--count N]

--count limits the cases per attack; all of them take a few minutes. Exits with 1 if a result differs from eager mode.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

# First, so that `layouts` is not this file.
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from attack.summary import Summary
from cases import EPSILON, GATES
from layouts import DTYPES, LAYOUTS, Several, exported, inputs_of, with_gradients

from vcdeploy.kernels import OPS

Case = tuple[str, torch.dtype, str]


def opcheck(case: Case) -> bool:
    inputs = [each.detach().requires_grad_() for each in inputs_of(*case)]
    torch.library.opcheck(OPS[case[0]].default, (*inputs, 1.0, EPSILON))
    return True


def export_and_aotinductor(case: Case) -> bool:
    network, cases = Several([case[0]]), [inputs_of(*case)]
    with tempfile.TemporaryDirectory() as folder:
        return all(all(map(torch.equal, outputs, network(cases))) for outputs in exported(network, cases, Path(folder)))


def compiled(case: Case) -> bool:
    torch._dynamo.reset()
    network, cases = Several([case[0]]), [inputs_of(*case)]
    made = with_gradients(torch.compile(network, fullgraph=True), cases)
    return all(map(torch.equal, made, with_gradients(network, cases)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="cases per attack; all by default")
    count = parser.parse_args().count
    warnings.simplefilter("ignore")  # deprecated functions that PyTorch itself uses
    attacks: dict[str, Callable[[Case], bool]] = {
        "opcheck on strides": opcheck,
        "torch.compile on strides, forward and backward": compiled,
        "torch.export and AOTInductor on strides": export_and_aotinductor,
    }
    summary = Summary()
    for name, attack in attacks.items():
        cases = list(product(GATES, DTYPES, [*LAYOUTS, "empty"]))[:count]
        failed = 0
        for case in cases:
            try:
                fine = attack(case)
            except Exception as error:
                print(f"{name}, {case}: {type(error).__name__}: {str(error)[:300]}")
                fine = False
            failed += not fine
        summary.line(name, len(cases), failed)
    summary.exit()


if __name__ == "__main__":
    main()
