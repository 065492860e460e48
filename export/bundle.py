"""A bundle: a folder with a model and all one needs to trust it elsewhere.

| file | |
|---|---|
| model.onnx | the model |
| samples.npz | tokens and state, and PyTorch's logits, state_out and compute for them: to check any other runtime |
| report.json | what the check after the export came to |
| manifest.json | versions, sizes and SHA-256 of the files; written last, so that a bundle that has it is whole |

With --trt there is more: tensorrt_bundle.py.
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
    """Write the bundle of a model file's content. `about` goes into the manifest: what was exported, and how.

    more: other files, by name.
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
    (folder / "manifest.json").unlink(missing_ok=True)  # an older bundle's would not fit the new files
    for name, each in files.items():
        write_atomically(folder / name, each)
    write_manifest(folder, manifest)


def file_entry(content: bytes) -> dict[str, Any]:
    """What a manifest says of a file."""
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
