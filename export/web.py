"""A web page that runs models without a server: the page of `vcdeploy serve`, its engine as WebAssembly, the models.

Any static host serves the folder. Exporting another model into it adds that model to the page.
"""

import json
from pathlib import Path
from typing import Any

import vcdeploy
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.spec import UNITS

ENGINE = "engine.wasm"
MODELS = "models.json"
SHOWN = ("kind", "unit", "dim", "layers", "sharpness", "epsilon", "precision")  # of the configuration, in models.json
_OF_SERVER = ("server.js", "engine.js")  # files of the page that the server's version has


def check_runs(config: dict[str, Any]) -> None:
    """Raise unless the page can run a model with this configuration."""
    if not UNITS[config["unit"]].variable or config["kind"] == "bits":
        raise BadValue(
            f"--web takes models of text or music with a variable unit, not a {config['unit']} of {config['kind']}"
        )


def write_web(folder: Path, name: str, content: bytes, config: dict[str, Any]) -> Path:
    """Write the page with the content of a model file, and return the model's path."""
    page = _page()
    known = _models(folder / MODELS)
    model = folder / f"{name}.onnx"
    entry = {"id": name, "file": model.name, "backend": "wasm"} | {each: config[each] for each in SHOWN}
    write_atomically(model, content)
    for path, each in page.items():
        write_atomically(folder / path, each)
    listed = [each for each in known if each["id"] != name] + [entry]
    write_atomically(folder / MODELS, (json.dumps(listed, indent=2) + "\n").encode())
    return model


def _page() -> dict[str, bytes]:
    """The files of the page, by path."""
    source = Path(vcdeploy.__file__).parent / "serving" / "page"
    found = {
        str(path.relative_to(source)): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and path.name not in _OF_SERVER
    }
    if ENGINE not in found:
        raise VcdeployError(f"{source / ENGINE} is missing: install vcdeploy again, or build it with `make web`")
    return {**found, "engine.js": b'// The engine of this page runs in the browser.\nexport * from "./browser.js";\n'}


def _models(file: Path) -> list[dict[str, Any]]:
    """The models that the page has already."""
    try:
        known = json.loads(file.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise VcdeployError(f"{file} is no list of models: remove it, or choose another folder") from error
    if not isinstance(known, list) or not all(isinstance(each, dict) and "id" in each for each in known):
        raise VcdeployError(f"{file} is no list of models: remove it, or choose another folder")
    return known
