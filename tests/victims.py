"""Commands to attack while they write: each runs in a forked process, under the shim of attack/io_shim.c.

Importing PyTorch takes seconds; a fork of a process that has imported it takes milliseconds. After an attack, `check`
says what is wrong with the files that are left.
"""

import contextlib
import ctypes
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
NOTHING, FAIL, FAIL_FROM_HERE_ON, SHORT, KILL = range(5)
SHIM = "VCDEPLOY_TEST_SHIM"
SMALL = ["--dim", "8", "--batch", "2", "--bptt", "10", "--warmup", "2", "--save-every", "5", "--sample", "0"]
EPOCHS = ["--epochs", "1.5"]


def under_shim() -> None:
    """Compile the shim and start this program again with it, unless it has it."""
    if SHIM in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        shim = Path(folder) / "io_shim.so"
        source = Path(__file__).parent / "attack" / "io_shim.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
        environment = {**os.environ, SHIM: str(shim), "LD_PRELOAD": str(shim)}
        raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


class Victim:
    """A command, the folder it writes into, and the state of that folder before and after it."""

    def __init__(self, name: str, arguments: Callable[[Path], list[str]], before: Path | None, final: bytes) -> None:
        self.name, self._arguments, self._before, self._final = name, arguments, before, final
        self._shim = ctypes.CDLL(os.environ[SHIM])
        self._shim.shim_count.restype = ctypes.c_long

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for one attack, as it is before the command."""
        with tempfile.TemporaryDirectory(prefix="attack-") as place:
            folder = Path(place).resolve() / "files"
            if self._before:
                shutil.copytree(self._before, folder)
            else:
                folder.mkdir()
            yield folder

    def start(self, folder: Path, at: int = 0, action: int = NOTHING, error: int = 0) -> int:
        """Start the command with an attack on its file operation number `at`; returns the process."""
        process = os.fork()
        if process:
            return process
        code = 70
        try:
            log = os.open(folder.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            tempfile.tempdir = str(folder.parent)
            os.environ["TMPDIR"] = str(folder.parent)
            from vcdeploy.cli import main

            self._shim.shim_arm(str(folder).encode(), at, action, error)
            main(self._arguments(folder), prog_name="vcdeploy")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            (folder.parent / "count").write_text(str(self._shim.shim_count()))
            os._exit(code)

    def run(self, folder: Path, at: int = 0, action: int = NOTHING, error: int = 0) -> tuple[int, str]:
        """Run the command; returns its exit code (negative: a signal) and what it printed."""
        _, status = os.waitpid(self.start(folder, at, action, error), 0)
        return os.waitstatus_to_exitcode(status), (folder.parent / "log").read_text()

    def operations(self) -> int:
        """The number of file operations of the command if nothing is attacked."""
        with self.folder() as folder:
            code, said = self.run(folder)
            assert code == 0, said
            return int((folder.parent / "count").read_text())

    def check(self, folder: Path, code: int, said: str) -> list[str]:
        """What is wrong after an attack: tracebacks, partial files, a run that does not end with the same bits."""
        wrong = []
        if "Traceback" in said or code == 70:
            wrong.append(f"traceback: {said[-1500:]}")
        wrong += [f"exit code {code} but no error: {said[-300:]}"] if code > 0 and "error: " not in said else []
        wrong += _partial(folder)
        if code >= 0:
            wrong += [f"left {each.name}" for each in folder.rglob(".*.*")]
        if wrong:
            return wrong
        return self._complete(folder)

    def _complete(self, folder: Path) -> list[str]:
        """Run again without an attack, as a user would: the result must be that of a run that was never attacked."""
        again = self
        if self.name.startswith("train") and (folder / "run" / "last.safetensors").exists():
            again = Victim(self.name, lambda f: ["train", "--resume", str(f / "run"), "--sample", "0"], None, b"")
        elif self.name == "train":
            shutil.rmtree(folder / "run", ignore_errors=True)
        code, said = again.run(folder)
        if code != 0:
            return [f"cannot be completed: {said[-1500:]}"]
        wrong = _partial(folder) + [f"left {each.name}" for each in folder.rglob(".*.*")]
        if self._final and fingerprint(folder) != self._final:
            wrong.append("the result is another one than without the attack")
        return wrong


def _partial(folder: Path) -> list[str]:
    """Files with a final name that are not complete."""
    from vcdeploy.training import checkpoint

    wrong = []
    for path in folder.rglob("*"):
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            if path.suffix == ".safetensors":
                checkpoint.read(path).build()
            elif path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.name == "metrics.jsonl":
                for line in path.read_bytes().split(b"\n")[:-1]:  # what follows the last newline may be partial
                    json.loads(line)
            elif path.suffix == ".onnx":
                import onnx

                onnx.checker.check_model(onnx.load_from_string(path.read_bytes()))
            elif path.suffix == ".npz":
                import numpy as np

                with np.load(io.BytesIO(path.read_bytes())) as arrays:
                    assert sum(arrays[name].size for name in arrays.files)
            elif path.suffix == ".txt":
                assert path.read_text() in ("old\n", TEXTS["sample"])
        except Exception as error:
            wrong.append(f"{path.name} is partial: {error!r:.300}")
    manifest = folder / "bundle" / "manifest.json"
    if not wrong and manifest.exists():
        import hashlib

        for name, entry in json.loads(manifest.read_bytes())["files"].items():
            if hashlib.sha256((folder / "bundle" / name).read_bytes()).hexdigest() != entry["sha256"]:
                wrong.append(f"{name} is not that of the manifest")
    return wrong


def fingerprint(folder: Path) -> bytes:
    """The bits that an attack must not change: weights, best, rows of metrics, outputs."""
    import hashlib

    from vcdeploy.training import checkpoint

    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".safetensors":
            saved = checkpoint.read(path)
            digest.update(f"{path.name} {saved.progress['step']} {saved.progress['best']}".encode())
            for name, each in sorted(saved.model.items()):
                digest.update(name.encode() + each.numpy().tobytes())
        elif path.name == "metrics.jsonl":
            for row in map(json.loads, path.read_bytes().splitlines()):
                row.pop("tokens_per_second", None)
                digest.update(json.dumps(row, sort_keys=True).encode())
        elif path.suffix in (".txt", ".onnx"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


def _warm_up(train: list[str], folder: Path, export: bool) -> None:
    """Run the commands in this process: what they import and initialize on first use costs a fork nothing."""
    from vcdeploy.cli import main

    commands = [[*train, "--out", str(folder)], ["sample", str(folder), "--length", "5"]]
    commands += [["export", "--force", str(folder), "-o", str(folder / "out.onnx")]] if export else []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for each in commands:
            main(each, prog_name="vcdeploy", standalone_mode=False)


TEXTS: dict[str, str] = {}


@contextlib.contextmanager
def victims(*names: str) -> Iterator[list[Victim]]:
    """The commands, by name: train (a new run), resume, export, bundle, sample."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="attack-") as place:
        root = Path(place).resolve()
        text = root / "small.txt"
        text.write_text("\n".join(" ".join(draw.choices(["the", "prime", "minister"], k=6)) for _ in range(28)))
        new = ["train", str(text), *SMALL, *EPOCHS]
        _warm_up(new, root / "warm", export="export" in names or "bundle" in names)
        train = Victim("train", lambda f: [*new, "--out", str(f / "run")], None, b"")
        with train.folder() as folder:
            code, said = train.run(folder)
            assert code == 0, said
            final, operations = fingerprint(folder), int((folder.parent / "count").read_text())
            shutil.copytree(folder, root / "finished")
        with train.folder() as folder:  # the state of a run that was stopped in the middle
            process = train.start(folder, at=operations * 3 // 4, action=KILL)
            os.waitpid(process, 0)
            assert (folder / "run" / "last.safetensors").exists() and (folder / "run" / "best.safetensors").exists()
            shutil.copytree(folder, root / "stopped")
        model = str(root / "finished" / "run")
        again = ["export", model, "--force"]  # what an attack left there may be replaced
        (root / "old").mkdir()
        (root / "old" / "out.txt").write_text("old\n")
        made = {
            "train": Victim("train", train._arguments, None, final),
            "resume": Victim("train --resume", lambda f: ["train", "--resume", str(f / "run"), "--sample", "0"],
                             root / "stopped", final),
            "export": Victim("export", lambda f: [*again, "-o", str(f / "out.onnx")], None, b""),
            "bundle": Victim("export --bundle", lambda f: [*again, "--bundle", str(f / "bundle")], None, b""),
            "sample": Victim("sample", lambda f: ["sample", model, "--length", "40", "-o", str(f / "out.txt")],
                             root / "old", b""),
        }  # fmt: skip
        with made["sample"].folder() as folder:
            code, said = made["sample"].run(folder)
            assert code == 0, said
            TEXTS["sample"] = (folder / "out.txt").read_text()
        yield [made[name] for name in names]
