"""docs/serving.md: its commands and code run on a server, and it names every field and path."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running, start

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    running = start("english", "irish", token=False)
    yield running
    assert running.stop() == 0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", [each for block in blocks("bash") for each in re.split(r"\n(?=curl)", block)])
def test_commands(command: str, server: Running, tmp_path: Path) -> None:
    script = command.replace(ADDRESS, server.url).replace("curl", "curl -sS --fail")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout or (tmp_path / "tune.mid").stat().st_size


@pytest.mark.parametrize("code", blocks("python"))
def test_code(code: str, server: Running) -> None:
    if "openai" in code:
        pytest.importorskip("openai", reason="needs the openai client: pip install openai")
    done = subprocess.run([sys.executable, "-c", code.replace(ADDRESS, server.url)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_paths_and_fields_are_documented(server: Running) -> None:
    api = server.json("/openapi.json")
    for path in api["paths"]:
        if not path.startswith("/v2/") or path.endswith("/infer"):
            assert path.replace("{name}", "NAME") in TEXT or path == "/v1/models/NAME" or "{name}" in path, path
    tune = api["paths"]["/v1/tunes"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    for name in set(tune) - {"model"}:
        assert f"`{name}`" in TEXT, name
    assert json.dumps(api)  # JSON all the way down
