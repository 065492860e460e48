"""Building a zoo entry from a run of `vcdeploy train`.

It runs the commands a user would type, and their output goes into the card: `export` writes the file and checks it on
every backend, `eval` measures the run and the file on the test text, `bench` times the file. Nothing in the zoo changes
unless all of them succeed.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from vcdeploy import zoo
from vcdeploy.corpora.catalogue import CATALOGUE, Entry
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.runtime.sources import open_source
from vcdeploy.training import checkpoint

# Corpora whose licence allows redistributing models trained on them, for any use.
FREE = ("demo", "europarl-cs", "europarl-de", "europarl-en", "irish")
LOSS = 0.005  # largest relative increase in bits per symbol that a narrower precision may cause
FIGURES = ("bits", "perplexity", "m", "m_spread", "rnn_d", "macs", "compute")


def build(name: str, run: Path, precision: str) -> dict[str, Any]:
    """Write a new entry and return its card."""
    made = _json_file(run / "run.json")
    entry = _free_corpus(made["config"]["corpus"])
    _check_finished(run, made["config"]["epochs"])
    with tempfile.TemporaryDirectory(prefix="vcdeploy-zoo-") as folder:
        file = Path(folder) / f"{name}.onnx"
        _vcdeploy("export", str(run), "--precision", precision, "-o", str(file))
        content = file.read_bytes()
        if len(content) > zoo.LARGEST:
            raise VcdeployError(
                f"{name} has {len(content):,} bytes in {precision}; the limit of an entry is {zoo.LARGEST:,}: "
                "use a narrower --precision, or train with a smaller --dim"
            )
        quality = {"file": _quality(str(file)), "run": _quality(str(run))}
        before, after = (quality[each]["bits"] for each in ("run", "file"))
        if after > before * (1 + LOSS):
            raise VcdeployError(
                f"{precision} costs too much: {before:.4f} bits become {after:.4f}. Use a wider --precision"
            )
        source = open_source(file)
        card = {
            "name": name,
            "licence": zoo.LICENCE,
            "file": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
            "model": {key: source.config[key] for key in ("unit", "dim", "layers", "precision", "sharpness", "kind")}
            | {"symbols": len(source.vocab), "weights": sum(each.values.size for each in source.weights().values())},
            "data": {"corpus": entry.name, "title": entry.title, "page": entry.page, "licence": entry.licence,
                     "split": entry.split},
            "training": {"command": _without_output(made["command"]), "date": made["date"], **source.config["training"],
                         **{key: made[key] for key in ("machine", "vcdeploy", "torch", "python")}},
            "quality": {"command": f"vcdeploy eval {name}", "split": "test", **quality},
            "speed": _speed(name, str(file), precision),
        }  # fmt: skip
        write_atomically(zoo.model_file(name), content)
        _write_card(name, card)
    return card


def timed_again(name: str) -> dict[str, Any]:
    """Time an entry again on this machine, and return its updated card."""
    if name not in zoo.names():
        raise VcdeployError(f"the zoo has no {name}, only {', '.join(zoo.names())}: give the run to build it from")
    card = zoo.card(name)
    card["speed"] = _speed(name, name, card["model"]["precision"])
    _write_card(name, card)
    return card


def _write_card(name: str, card: dict[str, Any]) -> None:
    write_atomically(zoo.FOLDER / f"{name}.json", (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode())


def _free_corpus(name: str) -> Entry:
    if name not in FREE:
        licence = f": {CATALOGUE[name].licence}" if name in CATALOGUE else ": its licence is not known"
        raise VcdeployError(f"the zoo takes no models of {name}{licence}; train on one of {', '.join(FREE)}")
    return CATALOGUE[name]


def _check_finished(run: Path, epochs: float) -> None:
    """Raise if the run is not finished: its best checkpoint may still change."""
    progress = checkpoint.read(checkpoint.find(run, prefer="last")).progress
    if progress["epoch"] * (1 + 1 / progress["step"]) < epochs:  # less than one step may be missing
        raise VcdeployError(f"{run} is at epoch {progress['epoch']:.4g} of {epochs:g}: let it finish first")


def _without_output(command: str) -> str:
    """A `vcdeploy train` command without its output folder, which is meaningless elsewhere."""
    words = shlex.split(command)
    if "--resume" in words:
        raise VcdeployError(f"`{command}` does not say how the run began: put the original command into its run.json")
    while "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    return shlex.join(words)


def _quality(model: str) -> dict[str, Any]:
    """Results of a model on the test text."""
    found = json.loads(_vcdeploy("eval", model, "--json"))
    return (
        {key: found[key] for key in ("backend", "precision", "symbols")}
        | {key: _rounded(found[key]) for key in FIGURES if key in found}
        | {"m_by_class": {each: _rounded(row["m"]) for each, row in found["classes"].items()}}
    )


def _rounded(value: float) -> float:
    """Round to six significant digits: the corpora are too small for more."""
    return float(f"{value:.6g}")


def _speed(name: str, model: str, precision: str) -> dict[str, Any]:
    """Generation speed of a model, and its speedup vs the dense unit of its size in ONNX Runtime."""
    engine = f"native {precision} + table"
    words = ["--scenario", "generate", "--precision", precision, "--engines", engine]
    document = json.loads(_vcdeploy("bench", model, *words, "--json", "-"))
    (found,) = (each for each in document["engines"] if each["name"] == engine)
    writing = found["scenarios"]["generate"]
    machine = document["machine"]
    return {
        "command": shlex.join(["vcdeploy", "bench", name, *words]),
        "engine": engine,
        "tokens_per_second": writing["symbols_per_second"],
        "microseconds": writing["p50"],
        "m": writing["m"]["mean"],
        "baseline": document["baseline"],
        "times_the_baseline": writing["ratio"],
        "threads": document["settings"]["threads"],
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['system']}",
        "date": document["date"],
    }


def _vcdeploy(*words: str) -> str:
    """Run a command and return its standard output; its standard error is passed through."""
    print(f"{time.strftime('%H:%M:%S')} vcdeploy {shlex.join(words)}", file=sys.stderr)
    result = subprocess.run([sys.executable, "-m", "vcdeploy", *words], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise VcdeployError(f"`vcdeploy {words[0]}` failed with the exit code {result.returncode}")
    return result.stdout


def _json_file(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VcdeployError(f"cannot read {path} ({error}): is this the folder of a finished run?") from error
    return content
