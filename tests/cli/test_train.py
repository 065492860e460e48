"""`vcdeploy train` and `vcdeploy eval` as a user types them, with real files and real signals."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from vcdeploy.cli import main
from vcdeploy.corpora import load
from vcdeploy.training import checkpoint
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.distributed import Processes
from vcdeploy.training.loop import Interrupted, Trainer, _locked

SMALL = ["--dim", "16", "--batch", "4", "--bptt", "20", "--warmup", "5", "--sample", "40", "--threads", "1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(" ".join(draw.choices(["the", "prime", "minister"], k=8)) for _ in range(110)))
    return path


def start(*arguments: str | Path, processes: int = 0) -> list[str]:
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"] if processes else []
    return [sys.executable, *launcher, "-m", "vcdeploy", *map(str, arguments)]


def vcdeploy(*arguments: str | Path, cwd: Path, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """In processes of their own."""
    command = start(*arguments, processes=processes if processes > 1 else 0)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command in this process, which spares it the import of PyTorch; run in tmp_path."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments])


def test_train_then_eval(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    result = vcdeploy("train", text, *SMALL, "--epochs", "2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "epoch 1 · valid · loss" in result.stdout
    for word in (
        "bits",
        "m 0.",
        "rnn_d",
        "sharpness 1",
        "a sample",
        "next: vcdeploy eval runs/small-vcgru-16",
    ):
        assert word in result.stdout
    folder = tmp_path / "runs" / "small-vcgru-16"
    run = json.loads((folder / "run.json").read_text())
    assert run["command"].startswith("vcdeploy train")
    assert run["config"]["dim"] == 16
    assert {"date", "machine", "torch"} <= run.keys()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["split"] for row in rows} == {"step", "train", "valid"}

    shown = here("eval", folder, "--split", "valid")
    assert shown.exit_code == 0, shown.stderr
    for word in ("bits per character", "mean m", "rnn_d", "macs", "white space", "letter", "end of word"):
        assert word in shown.stdout
    measured = json.loads(here("eval", folder, "--split", "valid", "--batch", "4", "--json").stdout)
    last = [row for row in rows if row["split"] == "valid"][-1]
    for name in ("bits", "m", "rnn_d", "macs"):
        assert measured[name] == pytest.approx(last[name], rel=1e-6)
    classes = measured["classes"]
    total = classes["white space"]["symbols"] + classes["letter"]["symbols"]
    assert total == measured["symbols"]
    mean = sum(classes[name]["symbols"] * classes[name]["m"] for name in ("white space", "letter")) / total
    assert mean == pytest.approx(measured["m"], rel=1e-5)


def test_two_runs_of_one_name_do_not_meet(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    for name in ("small-rnn-16", "small-rnn-16-2"):
        result = here("train", text, *SMALL, "--unit", "rnn", "--epochs", "0.1")
        assert result.exit_code == 0, result.stderr
        assert (tmp_path / "runs" / name / "best.safetensors").exists()
    again = here("train", text, *SMALL, "--out", "runs/small-rnn-16")
    assert again.exit_code == 1
    assert "already holds a run: continue it with --resume" in again.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_resume_ends_with_the_same_bits(
    text: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    arguments = ["train", str(text), *SMALL, "--epochs", "4", "--dropout", "0.1"]
    whole = vcdeploy(*arguments, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(
        start(*arguments, "--out", "parts"), cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    metrics = tmp_path / "parts" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert f"stopped by {number.name}" in output
    assert "vcdeploy train --resume parts" in output
    stopped = checkpoint.read(tmp_path / "parts" / "last.safetensors")
    resumed = vcdeploy("train", "--resume", "parts", "--threads", "1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert f"from {stopped.progress['step']:,}" in resumed.stdout
    ends = [checkpoint.read(tmp_path / name / "last.safetensors") for name in ("whole", "parts")]
    assert ends[0].progress["step"] == ends[1].progress["step"] > stopped.progress["step"]
    for name, wanted in ends[0].model.items():
        assert torch.equal(ends[1].model[name], wanted), name


@pytest.mark.parametrize(
    "extra", [[], ["--budget", "0.5"], ["--setting", "entropy"]], ids=["learn", "budget", "entropy"]
)
def test_two_processes_train_as_one(text: Path, tmp_path: Path, extra: list[str]) -> None:
    arguments = ["train", str(text), *SMALL, "--epochs", "1", *extra]
    for name, processes in (("one", 1), ("two", 2)):
        result = vcdeploy(*arguments, "--out", name, cwd=tmp_path, processes=processes)
        assert result.returncode == 0, result.stderr
    one, two = (checkpoint.read(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    for name, wanted in one.model.items():
        # Adam divides by the root of the squared gradient: rounding moves a weight by up to a few per cent of a step.
        # After some 90 steps of at most lr = 0.002 each, 1e-3 is half of one step.
        assert (two.model[name] - wanted).abs().max() < 1e-3, name
    assert torch.allclose(two.training["state"], one.training["state"], atol=1e-2)
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    for row, other in zip(*rows, strict=True):
        assert row["step"] == other["step"]
        assert other["bits"] == pytest.approx(row["bits"], rel=1e-4)
        assert other["m"] == pytest.approx(row["m"], rel=1e-3)


WATCHED = """
import json, os, sys
from pathlib import Path

from vcdeploy.cli import main
from vcdeploy.corpora import load
from vcdeploy.training.loop import Trainer

run, seen = Trainer.run, []

def look():
    names = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
    seen.append([name for name in names if "gloo" in name])

def watched(self):
    run(self)
    look()

Trainer.run = watched
main(sys.argv[1:], standalone_mode=False)
look()
Path(f"threads-{os.environ['RANK']}.json").write_text(json.dumps(seen))
"""


def test_no_thread_of_the_process_group_is_left_to_meet_the_end_of_the_interpreter(text: Path, tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "watched.py"]
    command += ["train", str(text), *SMALL, "--epochs", "0.1", "--out", "two"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    for rank in range(2):
        training, after = json.loads((tmp_path / f"threads-{rank}.json").read_text())
        assert training, "the names of gloo's threads have changed"
        assert not after


def test_two_processes_resume_what_one_began(text: Path, tmp_path: Path) -> None:
    arguments = ["train", str(text), *SMALL, "--epochs", "2"]
    whole = vcdeploy(*arguments, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(start(*arguments, "--out", "parts"), cwd=tmp_path)
    metrics = tmp_path / "parts" / "metrics.jsonl"
    while not metrics.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(60) == 143
    resumed = vcdeploy("train", "--resume", "parts", cwd=tmp_path, processes=2)
    assert resumed.returncode == 0, resumed.stderr
    one, two = (checkpoint.read(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    assert one.progress["step"] == two.progress["step"]
    for name, wanted in one.model.items():
        assert (two.model[name] - wanted).abs().max() < 2e-3, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "ptbb"], "no corpus is called 'ptbb'"),
        (["train", "empty.txt"], "empty"),
        (["train", "latin.txt"], "UTF-8"),
        (["train", "short.txt"], "short.txt"),
        (["train", "--dim", "0"], "--dim must be from 1 to 16384, not 0"),
        (["train", "--dim", "99999999999"], "--dim must be from 1 to 16384, not 99999999999"),
        (["train", "--dim", "16384", "--layers", "64"], "GB to train, and there are"),
        (["train", "--layers", "1000"], "--layers must be from 1 to 64"),
        (["train", "--setting", "guide"], "--setting guide needs --guide"),
        (["train", "--resume", "nowhere"], "no checkpoint at nowhere"),
        (["train", "--resume", "torn.safetensors"], "not a complete vcdeploy checkpoint"),
        (["eval", "torn.safetensors"], "not a complete vcdeploy checkpoint"),
        (["eval", "nowhere"], "no model at nowhere"),
    ],
)
def test_bad_input_is_an_error_that_leaves_nothing_behind(
    tmp_path: Path, here: Callable[..., Result], arguments: list[str], message: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("Müßiggang ist aller Laster Anfang\n".encode("latin-1") * 50)
    (tmp_path / "short.txt").write_text("a b")
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{}")
    before = sorted(os.listdir(tmp_path))
    result = here(*arguments)
    options = [each for each in arguments if each in ("--dim", "--layers", "--setting")]
    assert result.exit_code == (2 if options else 1)  # a bad value, or another error
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_settings_with_resume_are_refused(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    here("train", text, *SMALL, "--epochs", "0.1", "--out", "run")
    result = here("train", "--resume", "run", "--lr", "1", "--dim", "4")
    assert result.exit_code == 2
    assert "leave out --dim, --lr" in result.stderr
    model_only = here("train", "--resume", "run/best.safetensors")
    assert model_only.exit_code == 1
    assert "holds a model only: resume from run/last.safetensors" in model_only.stderr
    shutil.copy("run/best.safetensors", "run/last.safetensors")
    assert "run/last.safetensors holds a model only: start a new run" in here("train", "--resume", "run").stderr


def test_symbols_the_model_has_never_seen(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    here("train", text, *SMALL, "--epochs", "0.1", "--out", "run")
    (tmp_path / "other.txt").write_text(
        "the prime minister\n" * 30 + "the prime möthér\n" + "the prime minister\n" * 30
    )
    result = here("eval", "run", "other.txt")
    assert result.exit_code == 1
    for word in ("'ö'", "U+00F6", "--unknown drop"):
        assert word in result.stderr
    dropped = here("eval", "run", "other.txt", "--split", "train", "--unknown", "drop")
    assert dropped.exit_code == 0, dropped.stderr
    assert "2 unknown ones left out" in dropped.stdout


def test_a_full_disk_is_an_error_and_loses_nothing(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    """The system itself refuses files too large for `last`, but not for `best`."""
    arguments = ["train", str(text), *SMALL, "--epochs", "0.5"]
    free = here(*arguments, "--out", "free")
    assert free.exit_code == 0, free.stderr
    sizes = [(tmp_path / "free" / f"{name}.safetensors").stat().st_size for name in ("best", "last")]
    script = (
        f"import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({sum(sizes) // 2},) * 2)\n"
        f"from vcdeploy.cli import main\n"
        f"main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", script, *arguments, "--out", "limited"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stderr.startswith("error: could not save limited/last.safetensors: File too large")
    assert "Traceback" not in result.stderr
    checkpoint.read(tmp_path / "limited" / "best.safetensors").build()
    assert [path.name for path in (tmp_path / "limited").glob(".*")] == []


def test_a_folder_that_cannot_be_created(text: Path, here: Callable[..., Result]) -> None:
    result = here("train", text, *SMALL, "--out", "/proc/x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: could not create the run folder /proc/x: ")
    assert "give another --out" in result.stderr


def test_a_device_that_never_ends_is_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               here: Callable[..., Result]) -> None:  # fmt: skip
    monkeypatch.setattr("vcdeploy.corpora.files.LARGEST", 1 << 20)
    result = here("train", "/dev/zero")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: /dev/zero holds more than 1 MiB of text")


def test_a_learning_rate_far_too_high_is_an_error(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    result = here("train", text, *SMALL, "--lr", "1e30", "--epochs", "0.5", "--out", "run")
    assert result.exit_code == 1
    assert "lower --lr" in result.stderr
    assert not (tmp_path / "run" / "last.safetensors").exists()


def test_a_finished_run_says_so(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    assert here("train", text, *SMALL, "--epochs", "0.1", "--out", "run").exit_code == 0
    before = {each: (each.read_bytes() if each.is_file() else b"") for each in (tmp_path / "run").rglob("*")}
    result = here("train", "--resume", "run")
    assert result.exit_code == 0
    assert result.stdout.startswith("run is finished: all ")
    assert "with more --epochs than 0.1" in result.stdout
    assert {each: (each.read_bytes() if each.is_file() else b"") for each in (tmp_path / "run").rglob("*")} == before


def test_a_second_trainer_in_one_folder_is_refused(text: Path, tmp_path: Path, here: Callable[..., Result]) -> None:
    """Also before the first has saved anything; a killed one does not stand in the way."""
    first = subprocess.Popen(
        start("train", text, *SMALL, "--epochs", "1000", "--out", "run"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout is not None
        first.stdout.readline()
        run = (tmp_path / "run" / "run.json").read_bytes()
        for last in (False, True):
            while last and not (tmp_path / "run" / "last.safetensors").exists():
                assert first.poll() is None
                time.sleep(0.02)
            arguments = ["--resume", "run"] if last else [text, *SMALL, "--out", "run"]
            second = here("train", *arguments)
            assert second.exit_code == 1
            assert second.stderr.startswith("error: another process is training in run: wait for it or stop it")
            assert (tmp_path / "run" / "run.json").read_bytes() == run
    finally:
        first.kill()
        first.communicate()
    checkpoint.read(tmp_path / "run" / "last.safetensors").build()
    with _locked(tmp_path / "run"):
        pass


def workers(launcher: int) -> dict[str, int]:
    """The processes that torchrun has started, by rank."""
    found = {}
    for task in Path(f"/proc/{launcher}/task").iterdir():
        for child in (task / "children").read_text().split():
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            rank = next((each[5:].decode() for each in variables if each.startswith(b"RANK=")), None)
            if rank is not None:
                found[rank] = int(child)
    return found


@pytest.mark.parametrize("attack", ["kill 0", "kill 1", "terminate"])
def test_two_processes_of_which_one_dies(text: Path, tmp_path: Path, attack: str) -> None:
    """torchrun ends the other one, and the checkpoint can be resumed."""
    arguments = ["train", str(text), *SMALL, "--epochs", "30", "--save-every", "10", "--out", "run"]
    launcher = subprocess.Popen(
        start(*arguments, processes=2), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        while not (tmp_path / "run" / "last.safetensors").exists():
            assert launcher.poll() is None
            time.sleep(0.02)
        running = workers(launcher.pid)
        assert running.keys() == {"0", "1"}
        if attack == "terminate":
            launcher.terminate()
        else:
            os.kill(running[attack[-1]], signal.SIGKILL)
        output, _ = launcher.communicate(timeout=120)
    finally:
        launcher.kill()
    assert launcher.returncode != 0
    assert not any(Path(f"/proc/{each}").exists() for each in running.values())
    saved = checkpoint.read(tmp_path / "run" / "last.safetensors")
    saved.build()
    assert saved.progress["step"] > 0
    if attack == "terminate":
        assert f"stopped by SIGTERM at step {saved.progress['step']}, saved" in output
    trainer = Trainer(
        TrainConfig.from_json(saved.progress["config"]), load(str(text)), tmp_path / "run",
        Processes(0, 1, torch.device("cpu")),
    )  # fmt: skip
    trainer.restore(saved)
    first = saved.progress["step"] + 1
    trainer.on_step = lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == first else None
    with pytest.raises(Interrupted):  # nothing is in the way: it trains two more steps
        trainer.run()
    assert trainer.step == saved.progress["step"] + 2
