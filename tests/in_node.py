"""Runs a script of tests/web in node: a request goes in as JSON, the answer comes out as JSON."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import vcdeploy

PAGE = Path(vcdeploy.__file__).parent / "serving" / "page"


def in_node(script: str, **request: Any) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    done = subprocess.run(
        [node, Path(__file__).parent / "web" / script],
        input=json.dumps({"page": str(PAGE), **request}).encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
