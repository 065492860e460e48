"""Compile every kernel for every architecture and print the ptxas report as a Markdown page (`make ptxas`).

python plugins/tensorrt/ptxas.py [ARCHITECTURE …]      needs nvcc, but neither a GPU nor TensorRT

build/ptxas caches the report per architecture, sources and nvcc version. The page records a hash of the sources;
tests/plugins/test_ptxas.py compiles only if they have changed since.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "build" / "ptxas"
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "110", "120")
TYPES = {"fff": "f32", "6__halfff": "half weights", "6__halfS2_f": "half"}  # by mangled name
FLAGS = ("-std=c++17", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-c")
ENTRY = re.compile(
    r"Compiling entry function '_ZN8vcdeploy\d+(?P<path>block|cluster|grid)_kernel"
    r"INS_\d(?P<unit>VC[A-Z]+)E(?P<types>\w+?)EEv"
    r".*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)

# By "unit | types | path": registers, stack bytes, spilled bytes, bytes of static shared memory.
Resources = dict[str, list[int]]


def find_nvcc() -> str | None:
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def architectures(nvcc: str) -> list[str]:
    """The architectures that this nvcc supports."""
    known = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.split()
    return [each for each in ARCHITECTURES if f"compute_{each}" in known]


def version(nvcc: str) -> str:
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release ([\d.]+)", said)
    return found[1] if found else "?"


def sources_digest() -> str:
    """A hash of everything that launch.cu compiles, without comments and white space."""
    digest = hashlib.sha256()
    headers = ("launch.cu", "launch.h", "plan.h", "call.h", "../common/spec.h")
    for file in sorted([*HERE.glob("*.cuh"), *(HERE / name for name in headers)]):
        code = re.sub(r"//.*", "", file.read_text(encoding="utf-8"))
        digest.update("".join(code.split()).encode())
    return digest.hexdigest()[:16]


def is_current(page: str) -> bool:
    """Whether a page (docs/results/ptxas.md) matches the current sources."""
    return f"Sources: {sources_digest()}." in page


def resources(nvcc: str, architecture: str) -> Resources:
    """The ptxas report of the kernels for an architecture; exits with an error if nvcc can't compile them."""
    digest = hashlib.sha256(f"{version(nvcc)} {architecture} {FLAGS}".encode())
    digest.update(sources_digest().encode())
    kept = KEPT / f"{architecture}-{digest.hexdigest()[:16]}.json"
    if kept.is_file():
        found: Resources = json.loads(kept.read_text())
        return found
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, f"-arch=sm_{architecture}", str(HERE / "launch.cu"), "-o", f"{folder}/launch.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nvcc can't compile launch.cu for sm_{architecture}:\n{done.stderr}")
    found = {}
    for entry in ENTRY.finditer(done.stderr):
        shared = re.search(r"(\d+) bytes smem", entry["rest"])
        spilled = int(entry["stores"]) + int(entry["loads"])
        numbers = [int(entry["registers"]), int(entry["stack"]), spilled, int(shared[1]) if shared else 0]
        found[f"{entry['unit']} | {TYPES[entry['types']]} | {entry['path']}"] = numbers
    if len(found) != 27:
        raise SystemExit(f"ptxas reported {len(found)} kernels for sm_{architecture}, not 27:\n{done.stderr}")
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found))
    return found


def spills(tables: dict[str, Resources]) -> list[str]:
    """The kernels that have a stack frame or spill registers."""
    return [f"{key} on sm_{each}" for each, table in tables.items() for key, row in table.items() if any(row[1:3])]


def page(nvcc_version: str, tables: dict[str, Resources]) -> str:
    """The Markdown page. tables: by architecture."""
    shared = ", ".join(map(str, sorted({row[3] for table in tables.values() for row in table.values()})))
    lines = [
        "# ptxas report of the CUDA kernels",
        "",
        f"Registers per thread; blocks of 512 threads allow 128. nvcc {nvcc_version}.",
        "Written by `make ptxas`. Compiled, not run on a GPU.",
        f"Sources: {sources_digest()}. The tests recompile the kernels only if this hash changes.",
        "",
        "| unit | types | path | " + " | ".join(f"sm_{each}" for each in tables) + " |",
        "|---|---|---|" + "---|" * len(tables),
    ]
    for key in sorted(next(iter(tables.values())), key=lambda key: key.split(" | ")):
        cells = [
            "-" if key.endswith("cluster") and int(each) < 90 else str(table[key][0]) for each, table in tables.items()
        ]
        lines.append(f"| {' | '.join([key, *cells])} |")
    lines += [
        "",
        f"Static shared memory: {shared} bytes; the vectors are dynamic (docs/tensorrt.md).",
        f"Stack frames and spills: {'; '.join(spills(tables)) or 'none'}.",
        "Below sm_90 (-), cluster kernels are compiled to stop immediately.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        raise SystemExit("nvcc was not found: install the CUDA toolkit, or set CUDACXX")
    tables = {each: resources(nvcc, each) for each in sys.argv[1:] or architectures(nvcc)}
    print(page(version(nvcc), tables), end="")
    if spills(tables):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
