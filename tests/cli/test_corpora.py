"""`vcdeploy corpora`: the table, the JSON, and that neither loads anything heavy."""

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from vcdeploy.cli.corpora import corpora
from vcdeploy.corpora import CATALOGUE


def test_the_table_names_every_corpus(tmp_path: Path) -> None:
    result = CliRunner().invoke(corpora, ["--data-dir", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    assert set(CATALOGUE) <= set(lines)
    assert "5,852,947" in lines["ptb"]
    assert "fetched on first use" in lines["ptb"]
    assert "you supply it" in lines["thesession"]
    assert "pydoc_data" in lines["demo"]
    assert f"Data folder: {tmp_path}" in result.output


def test_json_says_what_is_here(tmp_path: Path) -> None:
    (tmp_path / "ptb").mkdir()
    for split in ("train", "valid"):
        (tmp_path / f"ptb/ptb.{split}.txt").touch()
    (tmp_path / "thesession").mkdir()
    (tmp_path / "thesession/tunes.json").touch()

    def rows() -> dict[str, dict[str, object]]:
        result = CliRunner().invoke(corpora, ["--json"], env={"VCDEPLOY_DATA": str(tmp_path)})
        return {row["name"]: row for row in json.loads(result.output)}

    before = rows()
    assert list(before) == list(CATALOGUE)
    assert before["ptb"]["path"] is None  # a part of it is missing
    assert before["ptb"]["otherwise"] == "fetched on first use"
    assert before["thesession"]["path"] == str(tmp_path / "thesession")
    assert before["text8"]["size"] == 100_000_000
    (tmp_path / "ptb/ptb.test.txt.xz").touch()
    assert rows()["ptb"]["path"] == str(tmp_path / "ptb")


def test_every_option_has_help() -> None:
    assert all(getattr(option, "help", None) for option in corpora.params)


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from vcdeploy.cli.corpora import corpora; "
        "assert CliRunner().invoke(corpora, []).exit_code == 0; "
        "print([name for name in ('torch', 'music21', 'onnx') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
