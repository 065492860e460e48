"""Bundles: a folder with a model and everything needed to verify it elsewhere.

| file | |
|---|---|
| model.onnx | the model |
| samples.npz | tokens and state, with PyTorch's logits, state_out and compute, to check any other runtime |
| report.json | result of the check after the export |
| manifest.json | versions, sizes and SHA-256 of the files; written last, so a bundle that has it is complete |

For the additional files of --trt see vcdeploy/gpu/tensorrt_bundle.py.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcdeploy.files import write_atomically
from vcdeploy.versions import versions

if TYPE_CHECKING:
    from vcdeploy.export.parity import Report


PACKAGES = ("torch", "onnx", "onnxruntime", "numpy")


def write_bundle(
    folder: Path, content: bytes, report: "Report", about: dict[str, Any], more: Mapping[str, bytes] | None = None
) -> None:
    """Write a bundle for the content of a model file.

    about: entries for the manifest, describing the export. more: additional files, by name.
    """
    files = {
        "model.onnx": content,
        **(more or {}),
        "samples.npz": _samples(report),
        "report.json": (json.dumps(report.to_json(), indent=2) + "\n").encode(),
    }
    manifest = {
        **about,
        "versions": versions(PACKAGES),
        "files": {name: file_entry(each) for name, each in files.items()},
    }
    (folder / "manifest.json").unlink(missing_ok=True)  # that of an older bundle would not match the new files
    for name, each in files.items():
        write_atomically(folder / name, each)
    write_manifest(folder, manifest)


def file_entry(content: bytes) -> dict[str, Any]:
    """The manifest entry of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_atomically(folder / "manifest.json", (json.dumps(manifest, indent=2) + "\n").encode())


def _samples(report: "Report") -> bytes:
    logits, state, compute = (each.astype(np.float32) for each in report.outputs)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        tokens=report.tokens,
        state=report.state,
        logits=logits,
        state_out=state,
        compute=compute,
    )
    return buffer.getvalue()
