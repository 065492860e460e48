"""Train a custom network with a variable unit, export it to ONNX, and run the file in plain ONNX Runtime.

    python examples/custom_network/train_and_export.py [network.onnx]

The task: read 24 random bits, one of them marked, and output the marked bit at the end. Only the marked step matters,
so the scheduler can learn to spend its computation there. Needs the extras `train` and `cpu`.
"""

import sys

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from vcdeploy.export import attach_functions
from vcdeploy.units import VCGRU

T, DIM, STEPS, BATCH = 24, 32, 200, 64


class Recall(nn.Module):
    """x [T, B, 2], a bit and a mark per step -> logits [B, 2], m [T, B, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = VCGRU(2, DIM, sharpness=0.3)
        self.classify = nn.Linear(DIM, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, _, m = self.unit(x, return_m=True)
        return self.classify(y[-1]), m


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    bits = torch.randint(0, 2, (T, BATCH), generator=generator)
    marks = nn.functional.one_hot(torch.randint(0, T, (BATCH,), generator=generator), T).T  # [T, B]
    return torch.stack([bits, marks], -1).float(), (bits * marks).sum(0)


def train(network: Recall, generator: torch.Generator) -> tuple[float, float]:
    """Train the network. Returns the mean loss of the first and of the last 20 steps."""
    schedulers = {id(each) for each in network.unit.scheduler_parameters()}
    groups = [
        {"params": [each for each in network.parameters() if id(each) not in schedulers], "lr": 5e-3},
        {"params": network.unit.scheduler_parameters(), "lr": 1e-3},  # slower: they move every dimension at once
    ]
    optimizer = torch.optim.Adam(groups)
    losses = []
    for step in range(STEPS):
        network.unit.sharpness = 0.3 + 0.7 * step / (STEPS - 1)  # grows evenly to 1
        x, target = batch(generator)
        logits, m = network(x)
        loss = nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        (loss + 0.05 * m.mean()).backward()  # the penalty pulls m down; the loss decides which steps resist
        for group in groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses[:20])), float(np.mean(losses[-20:]))


def main(path: str) -> None:
    torch.manual_seed(0)
    network, generator = Recall(), torch.Generator().manual_seed(0)
    first, last = train(network, generator)
    x, _ = batch(generator)
    network.eval()
    with torch.no_grad():
        logits, m = network(x)
    marked = x[:, :, 1] > 0
    on_marked, on_others = m[marked].mean(), m[~marked].mean()
    print(f"loss {first:.3f} -> {last:.3f}; mean m {on_marked:.2f} on marked steps, {on_others:.2f} on others")

    # One op node per layer; attach_functions adds the body of standard ops that any runtime can run.
    shapes = {"x": {0: torch.export.Dim("T"), 1: torch.export.Dim("B")}}
    program = torch.onnx.export(
        network,
        (x,),
        dynamo=True,
        input_names=["x"],
        output_names=["logits", "m"],
        dynamic_shapes=shapes,
        verbose=False,
    )
    onnx.save(attach_functions(program.model_proto), path)

    session = onnxruntime.InferenceSession(path)
    exported, exported_m = session.run(None, {"x": x.numpy()})
    print(f"wrote {path}; largest difference in ONNX Runtime: {np.abs(exported - logits.numpy()).max():.1e}")
    np.testing.assert_allclose(exported, logits.numpy(), atol=1e-4)
    np.testing.assert_allclose(exported_m, m.numpy(), atol=1e-4)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "network.onnx")
