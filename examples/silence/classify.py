"""A classifier of sounds that learns to skip silence: trained in a loop of its own, exported, run in ONNX Runtime.

    python examples/silence/classify.py [--steps 500] [classifier.onnx]

The task: 1.6 seconds of noise with three notes somewhere; their order is the class, one of six. Between the notes and
around them is silence, which the unit has to pass without forgetting. Everything is synthesized here. Needs the extras
`train` and `cpu`.
"""

import argparse
import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import vcdeploy
from vcdeploy.custom_ops import library
from vcdeploy.training.pieces import Budget, Sharpness, clip_gradients, parameter_groups

RATE, FRAME, T, BANDS = 8000, 160, 80, 24  # samples per second, samples per frame of 20 ms, frames, energies per frame
NOTES, NOTE = (500, 1100, 2100), 6  # Hz, frames
ORDERS = list(itertools.permutations(NOTES))
DIM, BATCH, BUDGET = 64, 32, 0.35


def recordings(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Energies [T, B, BANDS], classes [B], and which frames have sound [T, B]."""
    draw = np.random.default_rng(seed)
    audio = draw.normal(0, draw.uniform(0.02, 0.1, (count, 1)), (count, T * FRAME))
    classes, sounding = draw.integers(0, len(ORDERS), count), np.zeros((T, count), bool)
    seconds = np.arange(NOTE * FRAME) / RATE
    for n, kind in enumerate(classes):
        places = np.sort(draw.choice(T - 3 * NOTE, 3, replace=False)) + np.arange(3) * NOTE
        for place, note in zip(places, ORDERS[kind], strict=True):
            wave = np.sin(2 * np.pi * note * draw.uniform(0.9, 1.1) * seconds) * draw.uniform(0.2, 1)
            audio[n, place * FRAME : (place + NOTE) * FRAME] += wave
            sounding[place : place + NOTE, n] = True
    power = np.abs(np.fft.rfft(audio.reshape(count, T, FRAME) * np.hanning(FRAME), axis=-1)[..., 1:73]) ** 2
    energies = np.log(power.reshape(count, T, BANDS, 3).mean(-1) + 1e-3) / 3
    return torch.tensor(energies, dtype=torch.float32).transpose(0, 1), torch.tensor(classes), torch.tensor(sounding)


class Classifier(nn.Module):
    """Energies [T, B, BANDS] -> logits [B, classes], m [T, B, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.unit, self.classify = vcdeploy.VCGRU(BANDS, DIM), nn.Linear(DIM, len(ORDERS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, _, m = self.unit(x, return_m=True)
        return self.classify(y[-1]), m


def train(network: Classifier, steps: int) -> None:
    groups = parameter_groups(network, lr=4e-3)
    optimizer = torch.optim.Adam(groups)
    sharpness, budget = Sharpness(network, steps), Budget(network.unit, BUDGET)
    for step in range(steps):
        x, classes, _ = recordings(BATCH, seed=step)
        logits, m = network(x)
        loss = nn.functional.cross_entropy(logits, classes)
        (loss + budget(m)).backward()
        clip_gradients(groups, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        sharpness.step()


def export(network: Classifier, path: str) -> None:
    """One op node per layer, with the body of standard ops that ONNX Runtime runs if it does not have our op."""
    program: Any = torch.onnx.export(
        network,
        (torch.zeros(T, 2, BANDS),),
        dynamo=True,
        input_names=["x"],
        output_names=["logits", "m"],
        dynamic_shapes={"x": {0: torch.export.Dim("T"), 1: torch.export.Dim("B")}},
        verbose=False,
    )
    onnx.save(vcdeploy.attach_functions(program.model_proto), path)


def session_of(path: str, custom_op: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnx.load(path)
    if custom_op:
        options.register_custom_ops_library(str(library()))
        del model.functions[:]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def evaluate(network: Classifier) -> tuple[float, float, float]:
    """Accuracy on 1000 new recordings, and the mean m of frames with sound and without."""
    x, classes, sounding = recordings(1000, seed=10**6)
    with torch.no_grad():
        logits, m = network.eval()(x)
    return (logits.argmax(-1) == classes).float().mean().item(), m[sounding].mean().item(), m[~sounding].mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", default="classifier.onnx")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    torch.manual_seed(0)
    network = Classifier()
    train(network, options.steps)
    accuracy, on_sound, on_silence = evaluate(network)
    print(f"VCGRU-{DIM}: accuracy {accuracy:.3f}; mean m {on_sound:.2f} on sound, {on_silence:.2f} on silence")
    export(network, options.path)

    x, *_ = recordings(1, seed=7)
    with torch.no_grad():
        wanted, m = network(x)
    macs, dense = network.unit.macs(m), 6 * DIM**2 + BANDS * DIM
    print(f"{macs:,.0f} multiply-accumulates per step of a recording, of {dense:,} without skipping")
    for custom_op in (False, True):
        logits, _ = session_of(options.path, custom_op).run(None, {"x": x.numpy()})
        form = "our custom op" if custom_op else "stock ONNX Runtime"
        print(f"largest difference in {form}: {np.abs(logits - wanted.numpy()).max():.1e}")
        np.testing.assert_allclose(logits, wanted.numpy(), atol=1e-3)


if __name__ == "__main__":
    main()
