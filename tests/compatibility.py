"""Try exported files in every runtime and tool that is installed, and print a table: loads, runs, largest difference.

python tests/compatibility.py [--python PYTHON …] [--node FOLDER] > docs/results/runtimes.md

--python: the interpreters of other environments, such as one with another ONNX Runtime. They need numpy and what is to
be tried, but not vcdeploy. --node: a folder with the node_modules of onnxruntime-node and onnxruntime-web. What is
installed nowhere is not listed. Each try is a process of its own, so that a crash is also a result.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT = 300  # seconds for one try
WRONG = 1e-3  # a difference that is not rounding
HEAD = """# Runtimes and tools

Written by `python tests/compatibility.py`: VCRNN, VCGRU and VCLSTM of two layers (D = 12), 7 steps of 2 sequences,
from a state that is not zero. A number: all three load and run; the largest difference from our native kernels.
"no": one does not load or run. "crashes": the process dies. "wrong": the difference is above 1e-3, or a shape is
another one. Tools that change a file are followed by ONNX Runtime.
"""
# Columns: form and precision of the files.
FILES = [
    *(({}, precision) for precision in ("f32", "f16", "int8")),
    *(({"portable": True}, precision) for precision in ("f32", "f16", "int8")),
    ({"bucketed": True}, "f32"),
]
UNITS = ("vcrnn", "vcgru", "vclstm")
Outputs = list[Any]


def onnxruntime(model: str, feeds: dict[str, Any]) -> Outputs:
    import onnxruntime as ort

    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def openvino(model: str, feeds: dict[str, Any]) -> Outputs:
    import openvino as ov

    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    made = compiled(feeds)
    return [made[each] for each in compiled.outputs]


def mnn(model: str, feeds: dict[str, Any]) -> Outputs:
    import MNN
    import MNN.expr as F

    converted = model + ".mnn"
    command = [
        str(Path(sys.executable).parent / "mnnconvert"),
        "-f",
        "ONNX",
        "--modelFile",
        model,
        "--MNNModel",
        converted,
    ]
    subprocess.run(command, stdout=sys.stderr)
    if not Path(converted).exists():
        raise RuntimeError("mnnconvert wrote no file")
    names = ["logits", "state_out", "compute"]
    module = MNN.nn.load_module_from_file(converted, list(feeds), names)
    given = []
    for each in feeds.values():
        whole = each.dtype.kind == "i"
        array = np.ascontiguousarray(each, np.int32 if whole else np.float32)
        given.append(F.const(array, list(array.shape), F.NCHW, F.int if whole else F.float))
    return [F.convert(each, F.NCHW).read() for each in module.forward(given)]


def reference(model: str, feeds: dict[str, Any]) -> Outputs:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, feeds))


def after(change: Callable[[Any], Any]) -> Callable[[str, dict[str, Any]], Outputs]:
    """A tool that changes models: its result runs in ONNX Runtime."""

    def run(model: str, feeds: dict[str, Any]) -> Outputs:
        import onnx

        onnx.save(change(onnx.load(model)), model + ".changed.onnx")
        return onnxruntime(model + ".changed.onnx", feeds)

    return run


def _onnxsim(model: Any) -> Any:
    import onnxsim

    simplified, same = onnxsim.simplify(model)
    if not same:
        raise RuntimeError("onnxsim's own check failed")
    return simplified


def _onnxslim(model: Any) -> Any:
    import onnxslim

    return onnxslim.slim(model)


def _polygraphy(model: Any) -> Any:
    from polygraphy.backend.onnx import fold_constants

    return fold_constants(model, allow_onnxruntime_shape_inference=False)


def _onnxoptimizer(model: Any) -> Any:
    import onnxoptimizer

    return onnxoptimizer.optimize(model)


# argv: the folder of the package, the models.
NODE = """
const fs = require("fs"), [folder, ...models] = process.argv.slice(1), ort = require(folder);
const web = folder.endsWith("web");
if (web) { ort.env.wasm.numThreads = 1; ort.env.logLevel = "error"; }
(async () => {
  for (const model of models) {
    const given = JSON.parse(fs.readFileSync(model + ".feeds.json")), feeds = {};
    feeds.tokens = new ort.Tensor("int64", BigInt64Array.from(given.tokens.data, BigInt), given.tokens.dims);
    feeds.state = new ort.Tensor("float32", Float32Array.from(given.state.data), given.state.dims);
    const session = await ort.InferenceSession.create(web ? fs.readFileSync(model) : model);
    const made = await session.run(feeds);
    const outputs = session.outputNames.map(key => ({dims: made[key].dims, data: Array.from(made[key].data)}));
    fs.writeFileSync(model + ".made.json", JSON.stringify(outputs));
  }
})().catch(error => { console.error(String(error)); process.exit(1); });
"""

# What is tried: the package that must be installed, and how to get outputs from a file.
PYTHON = {
    "onnxruntime": ("onnxruntime", onnxruntime),
    "onnx's evaluator": ("onnx", reference),
    "openvino": ("openvino", openvino),
    "MNN": ("MNN", mnn),
    "onnxsim": ("onnxsim", after(_onnxsim)),
    "onnxslim": ("onnxslim", after(_onnxslim)),
    "polygraphy": ("polygraphy", after(_polygraphy)),
    "onnxoptimizer": ("onnxoptimizer", after(_onnxoptimizer)),
}


def probe(name: str, models: list[str]) -> None:
    """In the interpreter under test: run the models on their feeds and save the outputs."""
    for model in models:
        made = PYTHON[name][1](model, dict(np.load(model + ".npz")))
        np.savez(model + ".made.npz", *[np.asarray(each, np.float32) for each in made])


def build_files(folder: Path) -> dict[int, list[Path]]:
    """Write the files of each column, each with feeds and the outputs of the native kernels."""
    from small_models import TEXT, config, network

    from vcdeploy.format.graph import build
    from vcdeploy.runtime.model import load
    from vcdeploy.training.checkpoint import Checkpoint

    files: dict[int, list[Path]] = {}
    draw = np.random.default_rng(0)
    for column, (form, precision) in enumerate(FILES):
        files[column] = []
        for unit in UNITS:
            weights = network(unit, 2, TEXT).state_dict()
            checkpoint = Checkpoint(config(unit, 2, TEXT), TEXT, weights, {}, {})
            path = folder / f"{column}-{unit}.onnx"
            path.write_bytes(build(checkpoint, precision=precision, **form).SerializeToString())
            rows = 4 if unit == "vclstm" else 2
            tokens = draw.integers(0, len(TEXT), (7, 2))
            state = (draw.standard_normal((rows, 2, 12)) / 2).astype(np.float32)
            np.savez(f"{path}.npz", tokens=tokens, state=state)
            feeds = {name: {"dims": each.shape, "data": each.ravel().tolist()}
                     for name, each in (("tokens", tokens), ("state", state))}  # fmt: skip
            Path(f"{path}.feeds.json").write_text(json.dumps(feeds))
            np.savez(f"{path}.wanted.npz", *load(path, "native").run(tokens, state))
            files[column].append(path)
    return files


def tried(command: list[str], models: list[Path]) -> tuple[str, str]:
    """What a table says about a process that runs some models, and the error, if there is one."""
    for model in models:
        for ending in (".made.npz", ".made.json"):
            Path(f"{model}{ending}").unlink(missing_ok=True)
    try:
        said = subprocess.run([*command, *map(str, models)], capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "no", f"no result after {TIMEOUT} s"
    if said.returncode:
        lines = [line.strip() for line in (said.stdout + said.stderr).splitlines() if line.strip()]
        return ("crashes" if said.returncode < 0 else "no"), lines[-1] if lines else f"exit code {said.returncode}"
    largest = 0.0
    for model in models:
        wanted = list(np.load(f"{model}.wanted.npz").values())
        if Path(f"{model}.made.json").exists():
            document = json.loads(Path(f"{model}.made.json").read_text())
            made = [np.array(each["data"], np.float32).reshape(each["dims"]) for each in document]
        else:
            made = list(np.load(f"{model}.made.npz").values())
        for one, other in zip(made, wanted, strict=True):
            if one.shape != other.shape:
                return "wrong", f"{model.stem}: the shape {list(one.shape)} instead of {list(other.shape)}"
            largest = max(largest, float(np.abs(one - other).max()))
    return ("wrong" if largest > WRONG else "yes"), f"{largest:.0e}"


def subjects(pythons: list[str], node: str | None) -> list[tuple[str, list[str]]]:
    """What is installed: name with version, and the command that takes models."""
    found: list[tuple[str, list[str]]] = []
    for python in pythons:
        for name, (package, _) in PYTHON.items():
            code = f"import {package}; from importlib.metadata import version; print(version({package!r}))"
            said = subprocess.run([python, "-c", code], capture_output=True, text=True)
            if not said.returncode:
                label = f"{name} {said.stdout.split()[-1]}"
                if label not in [each for each, _ in found]:
                    found.append((label, [python, __file__, "probe", name]))
    for package in ("onnxruntime-node", "onnxruntime-web") if node else ():
        manifest = Path(str(node)) / "node_modules" / package / "package.json"
        if manifest.exists():
            label = f"{package} {json.loads(manifest.read_text())['version']}"
            found.append((label, ["node", "-e", NODE, "--", str(manifest.parent)]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--python", action="append", default=[], help="another interpreter; may be repeated")
    parser.add_argument("--node", help="folder with node_modules")
    options = parser.parse_args()
    titles = [f"{next(iter(form), 'default')} {precision}" for form, precision in FILES]
    print(HEAD)
    print(f"| runtime or tool | {' | '.join(titles)} |")
    print("|---" * (1 + len(titles)) + "|")
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        files = build_files(Path(folder))
        for label, command in subjects([sys.executable, *options.python], options.node):
            cells = []
            for column, models in files.items():
                outcome, detail = tried(command, models)
                cells.append(detail if outcome == "yes" else outcome)
                if outcome != "yes":
                    errors.append(f"| {label} | {titles[column]} | {detail[:160].replace('|', '/')} |")
            print(f"| {label} | {' | '.join(cells)} |", flush=True)
    if errors:
        print("\nThe last line each of them said:\n\n| runtime or tool | file | said |\n|---|---|---|")
        print("\n".join(errors))


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        probe(sys.argv[2], sys.argv[3:])
    else:
        main()
