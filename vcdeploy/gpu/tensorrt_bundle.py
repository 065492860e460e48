"""Bundles for TensorRT: what `vcdeploy export --trt` writes on any machine, and adds on the one with the GPU.

| file | |
|---|---|
| model.onnx and the rest | as in every bundle (bundle.py) |
| model-tensorrt.onnx | the plugin graph, for TensorRT and for ONNX Runtime's TensorRT provider |
| libvcdeploy_tensorrt.so | the plugin, if it could be built |
| model.plan | the engine, with the plugin inside; only for the GPU and the TensorRT it was built with |
| timing.cache | the timings of that build, which make the next one faster |

The manifest's section `tensorrt` has the ranges of steps and sequences and, once there is an engine, the GPU, the
versions, the hashes of its inputs, and what it was checked against.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from vcdeploy import extras
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.export.bundle import file_entry, write_bundle, write_manifest
from vcdeploy.files import write_atomically
from vcdeploy.format import reader
from vcdeploy.gpu import cuda, plugin_files
from vcdeploy.gpu.engine import Range, build_engine
from vcdeploy.gpu.plan import GRAPH, MANIFEST, MODEL, PLAN, SECTION, TIMING, read_checked, read_manifest
from vcdeploy.gpu.plugin_graph import plugin_graph
from vcdeploy.spec import TENSORRT_PRECISIONS, UNITS

if TYPE_CHECKING:
    from vcdeploy.export.parity import Difference, Report

UNFINISHED = 3  # exit code if everything but the engine was written
PYTORCH, NOTHING = "PyTorch", "nothing"


@dataclass
class Outcome:
    """The outcome of an engine build. missing: what it lacked if it was not built, each with how to get it."""

    missing: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    checked: str = NOTHING  # what the engine was compared with


def check_settings(precision: str, bucketed: bool, portable: bool) -> None:
    """Raise an error if the export settings don't work with TensorRT."""
    for option, given in (("--bucketed", bucketed), ("--portable", portable)):
        if given:
            raise BadValue(f"{option} is for runtimes without our kernels, but --trt includes them: use only one")
    if precision not in TENSORRT_PRECISIONS:
        raise BadValue(f"--trt takes --precision {' or '.join(TENSORRT_PRECISIONS)}, not {precision}")


def is_bundle(path: Path) -> bool:
    return path.is_dir() and (path / MANIFEST).is_file() and (path / MODEL).is_file()


def write(
    folder: Path, model: ModelProto, content: bytes, report: Report, about: dict[str, Any], steps: Range, batch: Range
) -> None:
    """Write everything that needs neither TensorRT nor a GPU."""
    section = {"ranges": {"steps": list(steps), "batch": list(batch)}, "plan": None}
    graph = plugin_graph(model).SerializeToString(deterministic=True)
    for stale in (PLAN, TIMING, plugin_files.CORE):
        (folder / stale).unlink(missing_ok=True)
    write_bundle(folder, content, report, {**about, SECTION: section}, {GRAPH: graph})


def finish(
    folder: Path, tell: Callable[[str], None], steps: Range | None = None, batch: Range | None = None
) -> Outcome:
    """Build, check and write the engine of a bundle, or report what is missing. tell: receives progress messages.

    steps and batch: by default those of the manifest.
    """
    manifest = read_manifest(folder)
    section, files = manifest[SECTION], manifest["files"]
    for name, given in (("steps", steps), ("batch", batch)):
        if given is not None and list(given) != section["ranges"][name]:
            section["ranges"][name], section["plan"] = list(given), None  # an engine for other ranges is stale
    content, graph = read_checked(folder, manifest, MODEL), read_checked(folder, manifest, GRAPH)
    properties = reader.read(content).metadata
    config = reader.read_config(properties, str(folder))
    outcome = Outcome()
    plugin = _plugin(folder, manifest, outcome, tell) if UNITS[config["unit"]].variable else None
    if find_spec("tensorrt") is None:
        outcome.missing.append(f"TensorRT: {extras.install_command('tensorrt')}")
    if (fault := cuda.fault()) is not None:
        outcome.missing.append(f"a GPU: {fault}")
    if plugin is not None:
        library = plugin.read_bytes()
        write_atomically(folder / plugin_files.CORE, library)
        files[plugin_files.CORE] = file_entry(library)
    if outcome.missing:
        if section["plan"] is None:
            files.pop(PLAN, None)
            (folder / PLAN).unlink(missing_ok=True)
        write_manifest(folder, manifest)
        return outcome

    tell("building the engine: TensorRT measures its kernels, which may take minutes")
    old = (folder / TIMING).read_bytes() if (folder / TIMING).is_file() else b""
    ranges: dict[str, Range] = {name: tuple(section["ranges"][name]) for name in ("steps", "batch")}
    built = build_engine(graph, config, ranges["steps"], ranges["batch"], plugin, old)
    _check(built.plan, folder, ranges, config, properties, content, outcome, tell)
    if any(not each.within for each in outcome.differences):
        worst = next(each for each in outcome.differences if not each.within)
        raise VcdeployError(
            f"the engine differs from PyTorch by more than rounding: {worst.output} by {worst.largest:.2g}, tolerance "
            f"{worst.tolerance:.2g}. It was not written; please report it with the output of `vcdeploy gpu-check`"
        )
    device = cuda.device()
    section["plan"] = {
        "tensorrt": built.tensorrt, "cuda": device.runtime, "driver": device.driver,
        "gpu": device.name, "capability": device.capability, "multiprocessors": device.multiprocessors,
        "graph": files[GRAPH]["sha256"],
        "plugin": files[plugin_files.CORE]["sha256"] if plugin is not None else None,
        "checked": outcome.checked,
    }  # fmt: skip
    for name, each in ((PLAN, built.plan), (TIMING, built.timing)):
        write_atomically(folder / name, each)
        files[name] = file_entry(each)
    write_manifest(folder, manifest)
    return outcome


def _plugin(folder: Path, manifest: dict[str, Any], outcome: Outcome, tell: Callable[[str], None]) -> Path | None:
    """The plugin: the installed one, the bundle's own, or one built now."""
    if (found := plugin_files.library()) is not None:
        return found
    if plugin_files.CORE in manifest["files"]:
        read_checked(folder, manifest, plugin_files.CORE)
        return folder / plugin_files.CORE
    from vcdeploy.gpu.plugin_build import build

    try:
        return build(None, tell)
    except VcdeployError as error:
        outcome.missing.append(str(error).replace("\n", "\n  "))
        return None


def _check(
    content: bytes, folder: Path, ranges: dict[str, Range], config: dict[str, Any], properties: dict[str, str],
    model: bytes, outcome: Outcome, tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Check the engine against PyTorch, if that is installed."""
    from vcdeploy.gpu.tensorrt import TensorRtModel

    vocab = reader.read_vocabulary(properties, config, str(folder))
    engine = TensorRtModel(content, folder, ranges, config, vocab)
    if find_spec("torch") is None:
        tell(f"the engine was not checked against PyTorch, which is not installed: {extras.install_command('torch')}")
        return
    from vcdeploy.export.parity import SEQUENCES, check_runtime
    from vcdeploy.runtime.sources import network_of

    least, _, most = ranges["batch"]
    batch = max(least, min(SEQUENCES, most))
    outcome.differences = check_runtime(f"TensorRT, {engine.detail}", engine, network_of(model, str(folder)), batch)
    outcome.checked = PYTORCH


def to_json(folder: Path, outcome: Outcome) -> dict[str, Any]:
    """The section `tensorrt` of `vcdeploy export --json`."""
    section = json.loads((folder / MANIFEST).read_bytes())[SECTION]
    return {**section, "missing": outcome.missing, "checked": outcome.checked}
