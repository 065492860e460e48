"""Compiles every kernel for every architecture and prints what ptxas says of it, as a page of Markdown (`make ptxas`).

python plugins/tensorrt/ptxas.py [ARCHITECTURE …]      needs nvcc; neither a GPU nor TensorRT
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "110", "120")
TYPES = {"fff": "f32", "6__halfff": "half weights", "6__halfS2_f": "half"}  # as names are mangled
ENTRY = re.compile(
    r"Compiling entry function '_ZN8vcdeploy\d+(?P<path>block|cluster|grid)_kernel"
    r"INS_\d(?P<unit>VC[A-Z]+)E(?P<types>\w+?)EEv"
    r".*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def resources(nvcc: str, architecture: str) -> dict[tuple[str, str, str], tuple[int, int, int, int]]:
    """Of (unit, types, path): registers, bytes of stack, spilled bytes, bytes of static shared memory."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-std=c++17", "--expt-relaxed-constexpr", f"-arch=sm_{architecture}", "-Xptxas", "-v", "-c"]
        command = [nvcc, *flags, str(HERE / "launch.cu"), "-o", f"{folder}/launch.o"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = {}
    for entry in ENTRY.finditer(said):
        shared = re.search(r"(\d+) bytes smem", entry["rest"])
        spilled = int(entry["stores"]) + int(entry["loads"])
        numbers = int(entry["registers"]), int(entry["stack"]), spilled, int(shared[1]) if shared else 0
        found[entry["unit"], TYPES[entry["types"]], entry["path"]] = numbers
    if len(found) != 27:
        raise SystemExit(f"ptxas named {len(found)} kernels for sm_{architecture}, not 27:\n{said}")
    return found


def main() -> None:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    version = re.search(r"release ([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout)
    known = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.split()
    architectures = sys.argv[1:] or [each for each in ARCHITECTURES if f"compute_{each}" in known]
    tables = {each: resources(nvcc, each) for each in architectures}
    spilling = [f"{key} on sm_{each}" for each, table in tables.items() for key, row in table.items() if any(row[1:3])]
    print("# What ptxas says of the kernels\n")
    print(f"Registers a thread, of the 128 that blocks of 512 threads leave; nvcc {version[1] if version else '?'}.")
    print("Written by `make ptxas`. Compiled, not run on a GPU.\n")
    print("| unit | types | path | " + " | ".join(f"sm_{each}" for each in architectures) + " |")
    print("|---|---|---|" + "---|" * len(architectures))
    for key in sorted(tables[architectures[0]]):
        cells = [
            "-" if key[2] == "cluster" and int(each) < 90 else str(table[key][0]) for each, table in tables.items()
        ]
        print(f"| {' | '.join([*key, *cells])} |")
    shared = ", ".join(map(str, sorted({row[3] for table in tables.values() for row in table.values()})))
    print(f"\nStatic shared memory: {shared} bytes; the vectors are dynamic (docs/tensorrt.md).")
    print(f"Stack frames and spills: {'; '.join(spilling) if spilling else 'none, in any of them'}.")
    print("Clusters are compiled empty below sm_90 (-).")
    if spilling:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
