"""The TensorRT plan of a bundle: its files, its manifest section, and whether it fits this machine."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdeploy.errors import VcdeployError
from vcdeploy.gpu import plugin_files

if TYPE_CHECKING:
    from vcdeploy.gpu.cuda import Device

MODEL, MANIFEST = "model.onnx", "manifest.json"
GRAPH = "model-tensorrt.onnx"  # what the engine is built from: the ops as plugin nodes, without function bodies
PLAN, TIMING = "model.plan", "timing.cache"
SECTION = "tensorrt"  # key in the manifest


def rebuild_command(folder: Path) -> str:
    """The command that builds the engine of a bundle on the machine that will run it."""
    return f"vcdeploy export {shlex.quote(str(folder))} --trt"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle that was exported with --trt, with its section `tensorrt`."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if not isinstance(manifest[SECTION], dict) or not isinstance(manifest["files"], dict):
            raise TypeError("its parts are of the wrong kind")
    except OSError as error:
        raise VcdeployError(
            f"{folder} has no {MANIFEST} ({error.strerror or error}): it is not a bundle of `vcdeploy export --trt`"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VcdeployError(
            f"{path} has no valid TensorRT section ({error}): create the bundle with `vcdeploy export MODEL --trt`"
        ) from error
    return dict(manifest)


def read_checked(folder: Path, manifest: dict[str, Any], name: str) -> bytes:
    """A file of a bundle, which must match its manifest."""
    path = folder / name
    ways = {PLAN: f"run {rebuild_command(folder)}", plugin_files.CORE: plugin_files.HOW_TO_BUILD}
    fix = ways.get(name, "create the bundle again with `vcdeploy export CHECKPOINT --trt`")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VcdeployError(f"cannot read {path} ({error.strerror or error}): {fix}") from error
    if (manifest["files"].get(name) or {}).get("sha256") != hashlib.sha256(content).hexdigest():
        raise VcdeployError(f"{path} does not match {MANIFEST}: {fix}")
    return content


def read_plan(folder: Path, device: Device, tensorrt: str) -> tuple[bytes, dict[str, Any]]:
    """The plan and its manifest section; raises an error with the rebuild command if it is not for this machine."""
    manifest = read_manifest(folder)
    record = manifest[SECTION].get("plan")
    if record is None:
        raise VcdeployError(f"{folder} has no engine yet: run {rebuild_command(folder)}")
    here = {"tensorrt": tensorrt, "capability": device.capability, "gpu": device.name}
    words = {"tensorrt": "TensorRT", "capability": "compute capability", "gpu": "GPU"}
    for key, value in here.items():
        if record.get(key) != value:
            raise VcdeployError(
                f"the engine in {folder} was built for {words[key]} {record.get(key)}, but this machine has {value}: "
                f"run {rebuild_command(folder)}"
            )
    read_checked(folder, manifest, GRAPH)
    if record.get("graph") != manifest["files"][GRAPH]["sha256"]:
        raise VcdeployError(f"the engine in {folder} was built from another {GRAPH}: run {rebuild_command(folder)}")
    return read_checked(folder, manifest, PLAN), dict(manifest[SECTION])
