"""`make fuzz`: load and run thousands of damaged model files; none may crash or hang.

A file is either refused with a VcdeployError, or it loads and runs. Anything else is a fault: another exception,
termination by a signal (a crash, exceeding the memory limit, a minute without a result), or a sanitizer report.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds for one file
REFUSED, RAN, RAN_NAN = "refused", "ran", "ran, with NaN or infinity in its answer"
SOUND = (REFUSED, RAN, RAN_NAN)


def write_originals(folder: Path) -> None:
    """Write small valid models of every unit and precision, as ONNX files and as checkpoints."""
    import onnx
    import torch
    from onnx import helper, numpy_helper
    from small_models import scheduled

    from vcdeploy.export import build
    from vcdeploy.format.checksum import seal
    from vcdeploy.training import checkpoint
    from vcdeploy.units import LanguageModel
    from vcdeploy.vocabulary import Vocabulary

    vocab = Vocabulary("\n abcdé")
    kinds = [
        ("vcgru", 9, 2, "f32"), ("vcgru", 33, 1, "int8"), ("vclstm", 7, 1, "bf16"), ("vcrnn", 12, 3, "f16"),
        ("vclstm", 8, 2, "int8"), ("vcrnn", 1, 1, "f32"), ("gru", 6, 1, "f32"), ("vcgru", 21, 1, "w8a8"),
    ]  # fmt: skip
    for number, (unit, dim, layers, precision) in enumerate(kinds):
        torch.manual_seed(number)
        network = scheduled(LanguageModel(unit, len(vocab), dim, layers=layers, sharpness=0.5))
        config = {
            "unit": unit, "dim": dim, "layers": layers, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32",
            "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
        }  # fmt: skip
        saved = checkpoint.Checkpoint(config, vocab, network.state_dict(), {}, {"step": 1})
        checkpoint.write(folder / f"{number}.safetensors", saved)
        model = build(saved, precision=precision)
        onnx.save(model, folder / f"{number}.onnx")
        if number == 0:  # as other exporters may write it: values in the typed fields
            for each in model.graph.initializer:
                array = numpy_helper.to_array(each)
                each.CopyFrom(helper.make_tensor(each.name, each.data_type, array.shape, array.flatten().tolist()))
            onnx.save(seal(model), folder / "typed.onnx")


def use_module(path: str) -> None:
    """Import this build of the native module instead of the installed one."""
    spec = importlib.util.spec_from_file_location("vcdeploy._native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["vcdeploy._native"] = module


def examine(path: Path, backend: str, precision: str | None) -> str:
    """Load the file, run a few steps and return the outcome."""
    import numpy as np

    from vcdeploy.errors import VcdeployError
    from vcdeploy.runtime.model import load

    try:
        model = load(path, backend, precision)
        tokens = np.arange(10).reshape(5, 2) % len(model.vocab)
        logits, state, m = model.run(tokens)
        again, _, _ = model.run(tokens, state, position=5)
    except VcdeployError as error:
        return REFUSED if str(error) else "a VcdeployError that says nothing"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    if logits.shape != again.shape or logits.shape != (5, 2, len(model.vocab)) or m.shape[:2] != (5, 2):
        return f"answers of the shapes {logits.shape}, {m.shape}"
    if not all(np.isfinite(each).all() for each in (logits, state, m, again)):
        return RAN_NAN
    try:
        made = list(model.generate(tokens[:, 0], 3))
    except VcdeployError:
        return REFUSED
    except Exception as error:
        return f"in generate, {type(error).__name__}: {str(error)[:200]}"
    return RAN if len(made) == 3 else f"{len(made)} symbols instead of 3"


def work(arguments: argparse.Namespace) -> None:
    """Worker process: prints a line before each file, and a line with its outcome."""
    if arguments.module:
        use_module(arguments.module)
    import random

    from mutations import mutated_checkpoint, mutated_onnx

    import vcdeploy.runtime  # noqa: F401

    suffix = ".safetensors" if arguments.kind == "checkpoint" else ".onnx"
    mutate = mutated_checkpoint if arguments.kind == "checkpoint" else mutated_onnx
    originals = [path.read_bytes() for path in sorted(arguments.folder.glob(f"[!.]*{suffix}"))]
    if arguments.limit:
        resource.setrlimit(resource.RLIMIT_AS, (arguments.limit << 20,) * 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        for number in range(arguments.start, arguments.count):
            seed = f"{arguments.seed}/{arguments.kind}/{number}"
            print(json.dumps({"number": number}), flush=True)
            signal.alarm(PATIENCE)  # by default, the alarm terminates the process
            what, content = mutate(seed, originals)
            path.write_bytes(content)
            precision = random.Random(seed).choice((None, None, None, "f16", "bf16", "int8", "w8a8"))
            outcome = examine(path, arguments.backend, precision if arguments.backend == "native" else None)
            signal.alarm(0)
            if arguments.keep and outcome not in SOUND:
                (arguments.keep / f"{number}{suffix}").write_bytes(content)
            print(json.dumps({"number": number, "what": what, "outcome": outcome}), flush=True)


def fuzz(folder: Path, kind: str, backend: str, count: int, **options: Any) -> list[dict[str, Any]]:
    """Try all files of a seed, restarting the worker after a crash: number, mutation and outcome of each."""
    results: list[dict[str, Any]] = []
    start, environment = 0, {**os.environ, **options.pop("environment", {})}
    settings = [f"--{name}={value}" for name, value in options.items() if value is not None]
    while start < count:
        command = [sys.executable, __file__, "--work", f"--folder={folder}", f"--kind={kind}", f"--backend={backend}",
                   f"--start={start}", f"--count={count}", *settings]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        results += [line for line in lines if "outcome" in line]
        if lines and "outcome" in lines[-1] and ended.returncode == 0:
            break
        if not lines:
            raise RuntimeError(f"the files could not be tried:\n{ended.stderr}")
        start = lines[-1]["number"] + 1
        if "outcome" not in lines[-1]:
            said = [line for line in ended.stderr.splitlines() if "ERROR" in line or "rror:" in line]
            outcome = f"ended with {ended.returncode}: {(said or ended.stderr.splitlines() or [''])[0]}"
            results.append({**lines[-1], "what": "", "outcome": outcome})
    return results


def sanitizers() -> dict[str, str]:
    """The environment of a process that loads a module built with VCDEPLOY_SANITIZE."""

    def library(name: str) -> str:
        found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        return found.stdout.strip()

    return {
        # libstdc++ as well: on startup the sanitizer looks up the functions that throw exceptions.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="files to try (default 2000)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--backend", default="native", choices=["native", "onnxruntime", "torch"])
    parser.add_argument("--kind", default="onnx", choices=["onnx", "checkpoint"])
    parser.add_argument("--module", help="the native module to use, built with -DVCDEPLOY_SANITIZE=ON")
    parser.add_argument("--limit", type=int, help="address space in MB; not with a sanitizer, which reserves all of it")
    parser.add_argument("--keep", type=Path, help="folder for files that caused a fault")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_originals(Path(folder))
        results = fuzz(Path(folder), arguments.kind, arguments.backend, arguments.count, seed=arguments.seed,
                       module=arguments.module, limit=arguments.limit, keep=arguments.keep,
                       environment=sanitizers() if arguments.module else {})  # fmt: skip
    faults = [each for each in results if each["outcome"] not in SOUND]
    counts = Counter(each["outcome"] for each in results if each["outcome"] in SOUND)
    print(f"{len(results)} files ({arguments.kind}, {arguments.backend}, seed {arguments.seed}"
          f"{', sanitized' if arguments.module else ''}):")  # fmt: skip
    for outcome in SOUND:
        print(f"{counts[outcome]:7} {outcome}")
    print(f"{len(faults):7} faults")
    for each in faults[:40]:
        print(f"  {each['number']}: {each['what']}: {each['outcome']}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
