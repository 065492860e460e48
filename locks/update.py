"""Write the lock files: every package of `make demo` and `make test`, pinned, with the hashes of its files.

`make lock` runs it; it needs uv. The versions are those of constraints.txt.

run.txt has the packages of `make demo`, test.txt those of `make test` without PyTorch. PyTorch has two builds: cpu.txt
has the one for CPUs, which most package indexes lack; its wheels are named as arguments, and their hashes are kept
until the version changes. cuda.txt has the one with CUDA, and the packages that only it needs. `make test` installs the
first of the two that the index has.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
OLDEST = "3.10"  # of pyproject.toml
BUILD = ("cmake", "nanobind", "ninja", "scikit-build-core")
EXTRAS = {"run": ("cpu", "music"), "test": ("train", "cpu", "serve", "music", "plots", "dev")}
CUDA = ("torch==", "nvidia-", "cuda-toolkit==", "triton==")
HEADER = "# Written by `make lock`: versions and hashes of every package. See CONTRIBUTING.md.\n"

Lock = dict[str, list[str]]  # "name==version ; marker" -> hashes


def read(text: str) -> Lock:
    """Read a requirements file with hashes."""
    found: Lock = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            name, *hashes = re.split(r"\s+--hash=", line.strip())
            found[name] = hashes
    return found


def write(lock: Lock) -> str:
    return HEADER + "".join(
        " \\\n".join([name, *(f"    --hash={each}" for each in hashes)]) + "\n" for name, hashes in lock.items()
    )


def pin(name: str) -> str:
    """The part `name==version` of a requirement, its extras left out."""
    return re.sub(r"\[.*?\]", "", name.partition(";")[0].strip())


def compile_lock(extras: tuple[str, ...], constraints: Path) -> Lock:
    """Resolve extras for every platform and Python version."""
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "build.in"
        tools.write_text("\n".join(BUILD))
        options = ["--universal", "--generate-hashes", "--no-annotate", "--no-header", "--python-version", OLDEST]
        options += ["--only-binary", ":all:"]  # a source package would be built with tools that are not locked
        command = ["uv", "pip", "compile", "--quiet", *options, "-c", str(constraints)]
        command += [word for extra in extras for word in ("--extra", extra)]
        done = subprocess.run([*command, "pyproject.toml", str(tools)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("uv could not resolve the versions: change constraints.txt")
    return read(done.stdout)


def update(wheels: list[Path]) -> None:
    found: dict[str, Lock] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Where a version has left the oldest Python behind, that Python takes the newest one that has not.
        relaxed = Path(folder) / "constraints.txt"
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        relaxed.write_text(
            "\n".join(
                each if ";" in each or each[0] == "#" else f'{each} ; python_version > "{OLDEST}"' for each in lines
            )
        )
        for name, extras in EXTRAS.items():
            found[name] = compile_lock(extras, relaxed)
    found["cuda"] = {name: found["test"].pop(name) for name in list(found["test"]) if name.startswith(CUDA)}
    (torch,) = (pin(each) for each in found["cuda"] if each.startswith("torch=="))
    file = FOLDER / "cpu.txt"
    builds = {
        name: set(hashes) for name, hashes in read(file.read_text(encoding="utf-8") if file.exists() else "").items()
    }
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        builds.setdefault(f"{name}=={version}", set()).add(f"sha256:{digest}")
    found["cpu"] = {name: sorted(builds[name]) for name in builds if name.partition("+")[0] == torch}
    for name, lock in found.items():
        (FOLDER / f"{name}.txt").write_text(write(lock), encoding="utf-8")


if __name__ == "__main__":
    update([Path(each) for each in sys.argv[1:]])
