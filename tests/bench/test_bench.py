"""`vcdeploy bench`: consistent figures, errors, and no processes left behind. No test depends on a measured time."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import scheduled

from vcdeploy import load
from vcdeploy.bench.scenarios import SAMPLING
from vcdeploy.cli.bench_options import put_out
from vcdeploy.export import build
from vcdeploy.spec import PRECISIONS
from vcdeploy.training import checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

Run = Callable[..., subprocess.CompletedProcess[str]]
BENCH = [sys.executable, "-m", "vcdeploy", "bench"]
MARK = "VCDEPLOY_BENCH_TEST"


def processes_of(mark: str) -> list[int]:
    """The processes of this user that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


@pytest.fixture
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment that marks its processes; at the end there must be none left, and no temporary files."""
    mark, temporary = f"{os.getpid()}-{request.node.name}", tmp_path / "temporary"
    temporary.mkdir()
    yield {**os.environ, MARK: mark, "TMPDIR": str(temporary)}
    assert processes_of(mark) == []
    assert list(temporary.glob("vcdeploy-*")) == []  # ONNX Runtime leaves another file


@pytest.fixture
def run(marked: dict[str, str], tmp_path: Path) -> Run:
    """bench(*words, **environment): the finished process."""

    def start(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BENCH, *words], capture_output=True, text=True, timeout=300, cwd=tmp_path, env={**marked, **environment}
        )

    return start


def document_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


SMALL = ("--dim", "32", "--rounds", "3", "--quick")
NATIVE = ["native f32", *(f"native {each} + table" for each in PRECISIONS)]


def check(document: dict[str, Any]) -> None:
    """Check what holds in every document: the figures are consistent."""
    by_name = {each["name"]: each for each in document["engines"]}
    rounds = document["settings"]["rounds"]
    baseline = by_name[document["baseline"]]["scenarios"]
    for engine in document["engines"]:
        assert set(engine["scenarios"]) | set(engine["not_measured"]) == set(document["settings"]["scenarios"])
        for name, found in engine["scenarios"].items():
            assert 0 < found["p50"] <= found["p90"] <= found["p99"]
            assert found["symbols_per_second"] > 0
            assert len(found["rounds"]) == rounds
            assert found["calls"] >= rounds and found["steps"] >= found["calls"]
            ratios = np.divide(baseline[name]["rounds"], found["rounds"])
            assert found["ratio"] == pytest.approx(np.median(ratios), rel=1e-4)
            assert found["ratio_to"][name] == found["ratio"] and set(found["ratio_to"]) == set(baseline)
            for other, ratio in found["ratio_to"].items():
                assert ratio == pytest.approx(
                    np.median(np.divide(baseline[other]["rounds"], found["rounds"])), rel=1e-4
                )
            assert found["ratio_p10"] <= found["ratio"] <= found["ratio_p90"]
            assert found["bytes_per_second"] == pytest.approx(found["bytes_per_step"] / found["p50"] * 1e6, rel=1e-4)
            assert found["bandwidth_fraction"] == pytest.approx(
                found["bytes_per_second"] / found["bandwidth"], rel=1e-3
            )
            reads = found["bandwidth_fraction"] >= 0.6
            assert found["bound"] == ("reading weights" if reads else "instructions or overhead")
    assert all(found["ratio"] == 1 for found in baseline.values())


def test_every_engine_and_scenario(run: Run, tmp_path: Path) -> None:
    result = run(*SMALL, "--m", "0.25:0.5", "--json", "new/out.json")
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "new" / "out.json").read_text())
    assert "{" not in result.stdout  # JSON only on request
    assert re.search(r"^\d\d:\d\d:\d\d bench: (?!done)\w", result.stderr, re.MULTILINE)  # progress, for a log
    check(document)
    assert document["baseline"] == "onnxruntime gru"
    measured = [each["name"] for each in document["engines"]]
    assert measured[: len(NATIVE)] == NATIVE
    for name in ("onnxruntime bucketed", "onnxruntime gru", "onnxruntime lstm", "torch gru", "torch lstm"):
        assert name in measured and name in result.stdout
    assert set(measured) | set(document["left_out"]) == {
        *NATIVE, "onnxruntime custom op", "onnxruntime function", "onnxruntime bucketed", "onnxruntime gru",
        "onnxruntime lstm", "torch gru", "torch lstm", "openvino gru", "jax gru",
        *(name.replace("native", "native gru") for name in NATIVE[1:]),
    }  # fmt: skip
    assert {name: set(each["not_measured"]) for each in document["engines"] if (name := each["name"])} == {
        name: {"step", "generate"} if name == "torch lstm" else set() for name in measured
    }
    for engine in document["engines"]:
        for found in engine["scenarios"].values():
            m = found["m"]
            if engine["unit"] == "vcgru":
                assert 0.25 - 1e-4 <= m["min"] <= m["p50"] <= m["max"] <= 0.5 + 1e-4
            else:
                assert m["mean"] == m["min"] == found["mean_square"] == 1
    # The native engines read the whole stream many times: m covers the range evenly.
    found = document["engines"][0]["scenarios"]["sequence"]
    assert found["m"]["min"] == pytest.approx(0.25, abs=1e-3) and found["m"]["max"] == pytest.approx(0.5, abs=1e-3)
    assert found["m"]["mean"] == pytest.approx(0.375, abs=0.02)
    assert found["m"]["spread"] == pytest.approx(0.25 / 12**0.5, abs=0.02)


@pytest.mark.parametrize(("json_file", "printed"), [(None, "the table\n"), (Path("-"), '{"unit": "é"}\n')])
def test_json_is_printed_only_on_request(
    json_file: Path | None, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put_out({"unit": "é"}, json_file, lambda: print("the table"))
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("unit", "dense"), [("vcrnn", "rnn"), ("vclstm", "lstm")])
def test_the_baseline_is_the_dense_unit_of_the_same_kind(unit: str, dense: str, run: Run) -> None:
    document = document_of(
        run(*SMALL, "--unit", unit, "--m", "0.4", "--batch", "3", "--steps", "5", "--threads", "2",
            "--engines", "native f32, onnxruntime function", "--scenario", "sequence,step", "--json", "-")
    )  # fmt: skip
    check(document)
    assert document["baseline"] == f"onnxruntime {dense}"
    names = [each["name"] for each in document["engines"]]
    assert names == ["native f32", "onnxruntime function", f"onnxruntime {dense}"]
    for engine in document["engines"][:2]:
        for name, found in engine["scenarios"].items():
            assert found["m"]["min"] == found["m"]["max"] == pytest.approx(0.4, abs=1e-4)
            assert found["steps"] == found["calls"] * {"step": 1, "sequence": 5}[name]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a run: a model of two layers whose m depends only on the symbol."""
    torch.manual_seed(4)
    vocab = Vocabulary(["\n", " ", *"abcde"])
    model = scheduled(LanguageModel("vcgru", len(vocab), 24, layers=2, sharpness=0.6, initial_m=0.3))
    weights = model.state_dict()
    for name in ("layers.0.u", "layers.1.u", "layers.1.v"):
        weights[f"unit.{name}"].zero_()
    weights["unit.layers.0.v"].mul_(3)
    config = {
        "unit": "vcgru", "dim": 24, "layers": 2, "sharpness": 0.6, "epsilon": 1e-3, "precision": "f32",
        "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    saved = checkpoint.Checkpoint(config, vocab, weights, {}, {"step": 1})
    checkpoint.write(tmp_path / "run" / "best.safetensors", saved)
    return tmp_path / "run"


def test_a_trained_model_reads_text_and_its_real_m_is_reported(run: Run, trained: Path, tmp_path: Path) -> None:
    model, text = load(trained), "a bad cab\n" * 40
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "model.onnx").write_bytes(build(checkpoint.read(trained / "best.safetensors")).SerializeToString())
    own = model.vocab.decode(list(model.generate(model.vocab.encode("\n"), 2048, SAMPLING, seed=5)))
    options = ("--rounds", "1", "--quick", "--scenario", "sequence", "--seed", "5", "--baseline", "onnxruntime lstm")
    for source, read, words in (("./run", text, ("--text", "text.txt")), ("model.onnx", own, ())):
        steps = ("--steps", str(len(read)))
        document = document_of(run(source, *words, *steps, "--engines", "native f32", *options, "--json", "-"))
        check(document)
        assert document["baseline"] == "onnxruntime lstm" and document["model"]["layers"] == 2
        assert document["settings"]["text"] == ("text.txt" if words else "the model's own")
        m = model.run(model.vocab.encode(read)[:, None])[2]
        assert document["engines"][0]["scenarios"]["sequence"]["m"]["mean"] == pytest.approx(m.mean(), abs=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--m", "0.6:0.2"], "--m '0.6:0.2' is not a range of m"),
        (["--m", "0"], "--m '0' is not a range"),
        (["--m", "half"], "such as 0.2:0.6"),
        (["--engines", "tensorflow"], "no engine 'tensorflow'; there are: native f32, native f32 + table"),
        (["--baseline", "gru"], "no engine 'gru' for --baseline; there are: native f32"),
        (["--scenario", "walk"], "--scenario has no 'walk': choose from step, sequence, generate"),
        (["--precision", ","], "--precision is empty"),
        (["--text", "a.txt", "--dim", "32"], "--text is for a trained MODEL"),
        (["nowhere"], "no model at nowhere"),
        (["nowhere", "--dim", "8"], "--dim is for a synthetic model"),
    ],
)
def test_errors_say_what_is_wrong(words: list[str], message: str, run: Run) -> None:
    result = run(*words)
    assert result.returncode == (1 if "no model" in message else 2)
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stdout == ""


def hide(module: str, folder: Path) -> str:
    """A folder for PYTHONPATH that makes a module look as if it were not installed."""
    (folder / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)\n"
        f"sys.modules[{module!r}] = None\n"
    )
    return str(folder)


def test_without_pytorch_its_engines_are_left_out_with_the_command_that_fixes_it(run: Run, tmp_path: Path) -> None:
    words = ("--engines", "native f32,torch", "--scenario", "step", *SMALL)
    result = run(*words, "--json", "out.json", PYTHONPATH=hide("torch", tmp_path))
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    check(document)
    assert set(document["left_out"]) == {"torch gru", "torch lstm"}
    assert 'left out: torch gru: PyTorch is not installed; run: pip install "torch>=2.8" ' in result.stdout


def test_without_a_baseline_there_is_no_run(run: Run, tmp_path: Path) -> None:
    result = run(*SMALL, "--baseline", "onnxruntime gru", PYTHONPATH=hide("onnxruntime", tmp_path))
    assert result.returncode == 1
    assert 'can\'t run: ONNX Runtime is not installed; run: pip install "onnxruntime>=1.20"' in result.stderr


def test_a_worker_that_dies_is_an_error_with_its_last_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'vcdeploy.bench.worker' in sys.orig_argv:\n"
        "    import os, vcdeploy.bench.scenarios as scenarios\n"
        "    def die(*_):\n"
        "        print('the ice broke', flush=True)\n"
        "        os.abort()\n"
        "    scenarios.measure = die\n"
    )
    result = run(*SMALL, "--engines", "native f32", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "the process of native f32 ended with signal 6 when asked to calibrate" in result.stderr
    assert "the ice broke" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_interrupted_run_leaves_no_process(number: int, code: int, marked: dict[str, str], tmp_path: Path) -> None:
    words = (
        "--dim",
        "32",
        "--rounds",
        "100000",
        "--engines",
        "native f32",
        "--scenario",
        "step",
        "--json",
        "x.json",
    )
    # When the tests run in the background, SIGINT is ignored, which child processes inherit.
    heeding = ["env", "--default-signal=INT"]
    with subprocess.Popen([*heeding, *BENCH, *words], cwd=tmp_path, env=marked, stderr=subprocess.PIPE) as process:
        try:
            while len(processes_of(marked[MARK])) < 3 and process.poll() is None:  # the command and two workers
                time.sleep(0.05)
            process.send_signal(number)
            process.communicate(timeout=30)
        finally:
            process.kill()  # otherwise a failed test would wait forever
    assert process.returncode == code
    deadline = time.monotonic() + 30
    while processes_of(marked[MARK]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (tmp_path / "x.json").exists()
    if number == signal.SIGKILL:  # no process is left to remove the models
        for file in sorted(Path(marked["TMPDIR"]).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else os.remove(file)
