"""Attacks on model files and checkpoints: none may load as another model, hang, or raise anything but VcdeployError.

    python tests/attack/files.py [--count N] [--megabytes N]

prints one line per kind of attack and exits with 1 if any failed. Deterministic for a seed.
"""

from __future__ import annotations

import argparse
import copy
import json
import operator
import random
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from attack.summary import Summary
from onnx import AttributeProto, ModelProto, NodeProto, helper

from vcdeploy.errors import VcdeployError
from vcdeploy.format import nodes
from vcdeploy.format.checksum import seal
from vcdeploy.runtime.model import load
from vcdeploy.runtime.sources import OnnxSource

TOKENS = np.arange(8).reshape(4, 2) % 7


# Bit flips


def flipped(draw: random.Random, content: bytes, end: int | None = None) -> bytes:
    """The content with one bit flipped, among the first `end` bytes."""
    data = bytearray(content)
    data[draw.randrange(end or len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def flips_in_models(folder: Path, count: int, seed: str = "0", backend: str = "native") -> list[str]:
    """Load model files with one flipped bit; they are refused, or give the same result. Returns the failures."""
    failures, draw = [], random.Random(seed)
    originals = sorted(path for path in folder.glob("[0-9].onnx") if backend != "native" or path.stem != "6")
    wanted = {path: _result(path, backend) for path in originals}
    for number in range(count):
        path = draw.choice(originals)
        damaged = folder / "flipped.onnx"
        damaged.write_bytes(flipped(draw, path.read_bytes()))
        try:
            if not _same(_result(damaged, backend), wanted[path]):
                failures.append(f"{path.name}, flip {number}: another result, without an error")
        except VcdeployError:
            pass
        except Exception as error:
            failures.append(f"{path.name}, flip {number}: {type(error).__name__}: {error}")
    return failures


def flips_in_headers(folder: Path, count: int, seed: str = "0") -> list[str]:
    """Read checkpoints with one flipped bit in the header; they are refused, or have the same content."""
    from vcdeploy.training import checkpoint

    failures, draw = [], random.Random(seed)
    originals = sorted(folder.glob("[0-9].safetensors"))
    wanted = {path: checkpoint.read(path) for path in originals}
    for number in range(count):
        path = draw.choice(originals)
        content = path.read_bytes()
        damaged = folder / "flipped.safetensors"
        damaged.write_bytes(flipped(draw, content, 8 + int.from_bytes(content[:8], "little")))
        try:
            found = checkpoint.read(damaged)
        except VcdeployError:
            continue
        except Exception as error:
            failures.append(f"{path.name}, flip {number}: {type(error).__name__}: {error}")
            continue
        here, there = (
            ({k: v.numpy().tobytes() for k, v in each.model.items()}, each.config, each.vocab, each.progress)
            for each in (found, wanted[path])
        )
        if here != there:
            failures.append(f"{path.name}, flip {number}: another content, without an error")
    return failures


def _result(path: Path, backend: str) -> tuple[Any, ...]:
    model = load(path, backend)
    return (*model.run(TOKENS), model.vocab)


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one[:3], other[:3], strict=True))
    return same and one[3] == other[3]


# Graphs that compute something else


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    waiting = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for attribute in node.attribute for inner in attribute.g.node]


def append_softmax(draw: random.Random, model: ModelProto) -> None:
    for node in model.graph.node:
        node.output[:] = ["scores" if name == "logits" else name for name in node.output]
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["logits"], axis=-1))


def change_attribute(draw: random.Random, model: ModelProto) -> None:
    """Change a number, a text or a constant of any node: of the graph, of a function body or nested."""
    choices = [each for node in _all_nodes(model) for each in node.attribute if each.type != AttributeProto.GRAPH]
    each = draw.choice(choices)
    if each.type == AttributeProto.FLOAT:
        each.f = each.f * 1.5 + 1
    elif each.type == AttributeProto.INT:
        each.i += draw.choice((-1, 1))
    elif each.type == AttributeProto.STRING:
        each.s += b"x"
    elif each.type == AttributeProto.INTS:
        each.ints.append(0)
    else:
        each.t.raw_data = flipped(draw, each.t.raw_data)


def swap_inputs(draw: random.Random, model: ModelProto) -> None:
    node = draw.choice([node for node in _all_nodes(model) if len(set(node.input)) > 1])
    node.input[:] = [*list(node.input)[1:], node.input[0]]


def change_op(draw: random.Random, model: ModelProto) -> None:
    node = draw.choice(list(_all_nodes(model)))
    node.op_type = draw.choice([op for op in ("Tanh", "Sigmoid", "Mul", "Add", "Sub", "Neg") if op != node.op_type])


def remove_node(draw: random.Random, model: ModelProto) -> None:
    body = draw.choice([model.graph.node, *(each.node for each in model.functions)])
    del body[draw.randrange(len(body))]


def repeat_node(draw: random.Random, model: ModelProto) -> None:
    model.graph.node.append(draw.choice(list(model.graph.node)))


def lose_functions(draw: random.Random, model: ModelProto) -> None:
    if model.functions:
        del model.functions[:]
    else:
        append_softmax(draw, model)


def add_initializer(draw: random.Random, model: ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor(draw.choice(("logits", "layers.9.U", "x")), 1, [1], [0.5]))


def add_sparse_initializer(draw: random.Random, model: ModelProto) -> None:
    values, indices = helper.make_tensor("layers.0.U", 1, [1], [2.0]), helper.make_tensor("i", 7, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [9]))


def rename_output(draw: random.Random, model: ModelProto) -> None:
    one, two = draw.sample(range(len(model.graph.output)), 2)
    model.graph.output[one].name, model.graph.output[two].name = (
        model.graph.output[two].name,
        model.graph.output[one].name,
    )


def old_opset(draw: random.Random, model: ModelProto) -> None:
    for each in model.opset_import:
        each.version = draw.choice((1, 17)) if each.domain == "" else 2


EDITS: tuple[Callable[[random.Random, ModelProto], None], ...] = (
    append_softmax, change_attribute, change_attribute, change_attribute, swap_inputs, change_op, remove_node,
    repeat_node, lose_functions, add_initializer, add_sparse_initializer, rename_output, old_opset,
)  # fmt: skip


def edited_graphs(folder: Path, count: int, seed: str = "0") -> list[str]:
    """Edit a graph and fit the checksum; whoever uses only the weights must refuse the file."""
    failures, draw = [], random.Random(seed)
    originals = [ModelProto.FromString(path.read_bytes()) for path in sorted(folder.glob("[0-9].onnx"))]
    for number in range(count):
        original = draw.choice(originals)
        model = ModelProto()
        model.CopyFrom(original)
        edit = draw.choice(EDITS)
        edit(draw, model)
        assert model != original, edit.__name__
        try:
            OnnxSource(Path("edited.onnx"), seal(model).SerializeToString()).weights()
            failures.append(f"{edit.__name__} {number}: its weights were used")
        except VcdeployError:
            pass
        except Exception as error:
            failures.append(f"{edit.__name__} {number}: {type(error).__name__}: {error}")
    return failures


# Hostile files of n bytes


def hostile(size: int) -> dict[str, Callable[[], bytes]]:
    """Files of about `size` bytes that are expensive for a careless reader."""

    def tensor(*fields: bytes) -> bytes:
        return nodes.part(7, nodes.part(5, b"".join(fields)))

    def described(config: str, vocab: str = '["a"]') -> bytes:
        entries = {"vcdeploy.config": config, "vcdeploy.vocab": vocab}
        properties = b"".join(nodes.part(14, nodes.part(1, k) + nodes.part(2, v)) for k, v in entries.items())
        return nodes.part(7, nodes.part(2, "g")) + properties

    name = nodes.part(8, "layers.0.U")
    huge = nodes.varint(2**62)
    sound = '{"unit": "vcgru", "dim": 1, "layers": 1, "sharpness": 1, "epsilon": 0.001, "precision": "f32", '
    return {
        "huge dimensions": lambda: tensor(name, nodes.whole(1, 2**62) * (size // 10)),
        "packed dimensions": lambda: tensor(name, nodes.part(1, huge * (size // 9))),
        "dimensions of 1": lambda: tensor(name, nodes.part(1, b"\1" * size)),
        "a name": lambda: tensor(nodes.part(8, "layers." + "0" * size)),
        "names": lambda: tensor(nodes.part(8, "layers.0.U") * (size // 12)),
        "initializers": lambda: nodes.part(7, nodes.part(5, name) * (size // 14)),
        "nodes": lambda: nodes.part(7, nodes.part(1, b"") * (size // 2)),
        "graphs": lambda: nodes.part(7, b"") * (size // 2),
        "functions": lambda: nodes.part(25, b"") * (size // 3),
        "properties": lambda: nodes.part(14, nodes.part(1, "k")) * (size // 5),
        "opsets": lambda: nodes.part(8, nodes.part(1, "d")) * (size // 5),
        "numbers": lambda: nodes.whole(1, 0) * (size // 2),
        "padded numbers": lambda: (b"\x08" + b"\x80" * 9 + b"\x00") * (size // 11),
        "an endless number": lambda: b"\x08" + b"\xff" * size,
        "nested JSON": lambda: described("[" * size),
        "nested objects": lambda: described('{"a":' * (size // 5)),
        "a vocabulary of lists": lambda: described(sound + '"kind": "text"}', "[" + "[]," * (size // 3) + "[]]"),
        "a symbol": lambda: described(sound + '"kind": "text"}', json.dumps(["a" * size, "a" * size])),
        "a long unit": lambda: described('{"unit": "' + "x" * size + '"}'),
        "a digit string": lambda: described('{"dim": ' + "9" * size + "}"),
        "a kind": lambda: described(sound + '"kind": "' + "x" * min(size, 2**20 - 200) + '"}'),
        "text": lambda: b"a" * size,
        "zeros": lambda: bytes(size),
    }


# A file of n bytes may take this long and this much memory: far more than needed (a refused one is mostly just read),
# and linear, so that quadratic work on 100 MB exceeds it many times over.
SECONDS, SECONDS_PER_MB = 4.0, 0.2
MEGABYTES, MEGABYTES_PER_MB = 150, 12
LONGEST_MESSAGE = 2000  # characters, paths included


# Loads each path it reads; prints seconds of CPU time, the largest additional memory so far in MB, and the message.
LOAD_EACH = """
import json, resource, sys, time, warnings
import vcdeploy
from vcdeploy.errors import VcdeployError
warnings.simplefilter("ignore")
try:
    vcdeploy.load("no model", "native")
except VcdeployError:
    pass  # everything is imported now
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
for line in sys.stdin:
    start, said = time.process_time(), ""
    try:
        vcdeploy.load(line.strip(), "native")
    except VcdeployError as error:
        said = str(error)
    print(json.dumps([time.process_time() - start, peak() - before, said]), flush=True)
"""


def hostile_files(folder: Path, size: int, timed: bool = True) -> list[str]:
    """Load hostile files of `size` bytes in another process. timed: False to fail on hanging only."""
    failures, megabytes = [], size / 2**20
    limit, path = SECONDS + SECONDS_PER_MB * megabytes, folder / "hostile.onnx"
    child: subprocess.Popen[str] | None = None
    for name, make in hostile(size).items():
        path.write_bytes(make())
        if child is None or child.poll() is not None:
            child = subprocess.Popen(
                [sys.executable, "-c", LOAD_EACH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert child.stdin is not None and child.stdout is not None
        alarm = threading.Timer(30 + 10 * limit, child.kill)
        alarm.start()
        print(path, file=child.stdin, flush=True)
        line = child.stdout.readline()
        alarm.cancel()
        if not line:
            failures.append(f"{name}: the process ended or took more than {30 + 10 * limit:.0f} s")
            child.communicate()
            continue
        seconds, memory, said = json.loads(line)
        if timed and seconds > limit:
            failures.append(f"{name}: {seconds:.1f} s")
        if memory > MEGABYTES + MEGABYTES_PER_MB * megabytes:
            failures.append(f"{name}: {memory:.0f} MB")
        if not 0 < len(said) <= LONGEST_MESSAGE:
            failures.append(f"{name}: a message of {len(said)} characters")
    if child and child.poll() is None:
        child.communicate()
    path.unlink()
    return failures


# Crafted states of a run, with a fitting checksum


class Run:
    """A short finished run on a small text, and trainers that resume it."""

    def __init__(self, folder: Path) -> None:
        from vcdeploy.corpora import load as load_corpus
        from vcdeploy.training import checkpoint

        draw = random.Random(0)
        words = ["prime", "minister", "of", "the", "a", "tune", "state", "step"]
        text = folder / "small.txt"
        text.write_text("\n".join(" ".join(draw.choices(words, k=8)) for _ in range(80)) + "\n")
        self.corpus, self.folder = load_corpus(str(text)), folder / "run"
        self.folder.mkdir()
        self.trainer().run()
        self.saved = checkpoint.read(self.folder / "last.safetensors")

    def trainer(self, config: Any = None) -> Any:
        import torch

        from vcdeploy.training.config import TrainConfig
        from vcdeploy.training.distributed import Processes
        from vcdeploy.training.loop import Trainer

        config = config or TrainConfig(corpus="small", dim=8, batch=4, bptt=20, epochs=1.0, warmup=5, budget=0.97,
                                       sharpness_start=1.0, sharpness_end=10.0, sharpness_growth=9.0)  # fmt: skip
        return Trainer(config, self.corpus, self.folder, Processes(0, 1, torch.device("cpu")))

    def resume(self, change: Callable[[Any], None] = lambda state: None) -> None:
        """Change the saved state, write it with a fitting checksum, read it again and resume from it."""
        from vcdeploy.training import checkpoint, resume

        path, changed = self.folder / "crafted.safetensors", copy.deepcopy(self.saved)
        change(changed)
        checkpoint.write(path, changed)
        read = checkpoint.read(path)
        self.trainer(resume.settings(read)).restore(read)


MISSING = object()
VALUES: tuple[Any, ...] = (
    MISSING, None, True, -5, 10**30, 1.5, float("nan"), float("inf"), -1e308, "x", [], {}, [[1]], {"a": 1}, 2**62,
)  # fmt: skip
SETTINGS: tuple[tuple[str, Any], ...] = (
    ("dim", 10**9), ("dim", 9), ("layers", 10**9), ("layers", 2), ("layers", True), ("unit", "x"), ("unit", "crnn"),
    ("batch", 5), ("batch", 10**12), ("bptt", -1), ("epochs", float("inf")), ("epochs", float("nan")),
    ("epochs", 1e-9), ("lr", float("inf")), ("lr", MISSING), ("dropout", 1.0), ("dropout", "0"), ("budget", None),
    ("corpus", "other"), ("seed", "x"), ("seed", 1.5), ("unheard_of", 1),
)  # fmt: skip


def _fits(key: str, value: Any) -> bool:
    """Whether a run may have this value in the state of its objective."""
    if value is None:
        return key in ("mean_entropy", "spent", "spent_lately")
    if type(value) not in (int, float) or not np.isfinite(float(value)):
        return False
    if key == "integral":
        return bool(np.log(1e-4) <= value <= np.log(10))
    return key == "weight" or (key in ("mean_entropy", "surplus", "spent", "spent_lately") and bool(value >= 0))


def crafted(saved: Any) -> dict[str, Callable[[Any], None]]:
    """Changes that make a state no run has, by name.

    Each value that resuming uses is removed, or has a wrong type, size or range.
    """
    import torch

    made: dict[str, Callable[[Any], None]] = {}

    def set_progress(keys: tuple[str, ...], value: Any) -> None:
        """MISSING removes the value."""

        def change(each: Any) -> None:
            place = each.progress
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value
            if value is MISSING:
                del place[keys[-1]]

        made[f"{'.'.join(keys)} = {value!r}"] = change

    def set_tensor(group: str, name: str, what: str, value: Any) -> None:
        def change(each: Any) -> None:
            getattr(each, group)[name] = value
            if value is MISSING:
                del getattr(each, group)[name]

        made[f"{group}.{name} {what}"] = change

    for key in ("step", "best", "corpus", "config", "objective"):
        for value in VALUES:
            if not (key == "best" and value is None):
                set_progress((key,), value)
    state = saved.progress["objective"]
    places: list[tuple[str, ...]] = [("objective", key) for key in state]
    places += [("objective", "steering", key) for key in state["steering"]]
    for keys in places:
        for value in VALUES:
            if not _fits(keys[-1], value):
                set_progress(keys, value)
    for key, value in SETTINGS:
        set_progress(("config", key), value)
    for key, value in (("unit", "x"), ("dim", 9), ("layers", 64)):

        def change_both(each: Any, key: str = key, value: Any = value) -> None:
            each.progress["config"][key] = each.config[key] = value

        made[f"{key} = {value!r} in description and settings"] = change_both
    made["other symbols"] = lambda each: setattr(each, "vocab", type(each.vocab)([*each.vocab.symbols[:-1], "é"]))
    for group in ("model", "training"):
        made[f"no {group}"] = operator.methodcaller("__setattr__", group, {})
        set_tensor(group, "new", "unknown", torch.zeros(1))
        for name, tensor in getattr(saved, group).items():
            others = {
                "missing": MISSING,
                "of another shape": tensor.flatten()[:-1] if tensor.dim() else tensor[None],
                "of one more dimension": tensor[None],
                "of another type": tensor.double() if tensor.dtype != torch.float64 else tensor.float(),
                "int64": tensor.long(),
                "empty": tensor.new_zeros(0),
            }
            if tensor.is_floating_point():
                others |= {"NaN": tensor * float("nan"), "infinite": torch.full_like(tensor, float("inf"))}
            if name.endswith(("exp_avg_sq", ".step")) or name in ("epoch_tally", "recent"):
                others["negative"] = torch.full_like(tensor, -5)
            if name == "rng":
                others["all ones"] = torch.full_like(tensor, 255)
            for what, other in others.items():
                set_tensor(group, name, what, other)
    del made["training.state missing"]  # a run starts its epochs without one
    return made


def crafted_states(run: Run, every: int = 1) -> tuple[int, list[str]]:
    """Resume from crafted states: each must be refused. Returns the number of tries and the failures."""
    failures, changes = [], list(crafted(run.saved).items())[::every]
    run.resume()  # the original is accepted
    for name, change in changes:
        try:
            run.resume(change)
            failures.append(f"{name}: resumed")
        except VcdeployError as error:
            if len(str(error)) > LONGEST_MESSAGE:
                failures.append(f"{name}: a message of {len(str(error))} characters")
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    return len(changes), failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1500, help="tries of each random attack (default 1500)")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the largest hostile files (default 100)")
    parser.add_argument("--seed", default="0")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of files without a checksum
    from fuzz import SOUND, fuzz, write_originals

    summary = Summary()

    def tell(what: str, tries: int, failures: list[str]) -> None:
        summary.line(what, tries, len(failures))
        for each in failures[:20]:
            print(f"  {each}", flush=True)

    count, seed = arguments.count, arguments.seed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_originals(folder)
        for backend in ("native", "onnxruntime"):
            tell(f"a flipped bit in a model file, {backend}", count, flips_in_models(folder, count, seed, backend))
        tell("a flipped bit in a checkpoint's header", count, flips_in_headers(folder, count, seed))
        tell("an edited graph with a fitting checksum", count, edited_graphs(folder, count, seed))
        for kind in ("onnx", "checkpoint"):
            (folder / "flipped.onnx").unlink(missing_ok=True)
            (folder / "flipped.safetensors").unlink(missing_ok=True)
            results = fuzz(folder, kind, "native", count, seed=seed)
            faults = [f"{each['number']}: {each['what']}: {each['outcome']}" for each in results]
            kept = [fault for fault, each in zip(faults, results, strict=True) if each["outcome"] not in SOUND]
            tell(f"a damaged or hostile {kind} file", count, kept)
        for megabytes in (1, arguments.megabytes):
            tries = len(hostile(0))
            tell(f"a hostile file of {megabytes} MB", tries, hostile_files(folder, megabytes << 20))
        tell("a crafted state of a run with a fitting checksum", *crafted_states(Run(folder)))
    summary.exit()


if __name__ == "__main__":
    main()
