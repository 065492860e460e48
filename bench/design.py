"""The design of a full report: which parts it has, and what each varies around a base point.

Not every combination is measured. The base is a VCGRU, batch 1, one thread, m evenly spread over 0.2 to 0.6; a part
varies one or two things, and has the dense models that its ratios refer to among its own contenders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vcdeploy.bench import contenders as known
from vcdeploy.bench.contenders import CUSTOM_OP, DENSE, Contender
from vcdeploy.bench.scenarios import COLD

Share = tuple[float, float]

UNITS = ("vcrnn", "vcgru", "vclstm")
BASE_UNIT, BASE_SHARE = "vcgru", (0.2, 0.6)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
SIZES = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0)  # of the largest D
BATCH = 8
STEPS = 50  # of a sequence
TAIL_ROUNDS = 100  # of a hundredth of the steps each


@dataclass(frozen=True)
class Entry:
    """A contender at a size and, where it is a variable unit, with shares; unit: the variable one it stands beside."""

    label: str
    contender: Contender
    unit: str
    dim: int
    share: Share
    baseline: str

    @classmethod
    def of(cls, contender: Contender, unit: str, dim: int, share: Share) -> Entry:
        place = f"{unit}-{dim}"
        varied = f", m {share[0]:g}" if contender.variable and share[0] == share[1] else ""
        renamed = replace(contender, name=f"{place}{varied}: {contender.name}", file=_file(contender, dim, share))
        return cls(contender.name, renamed, unit, dim, share, f"{place}: onnxruntime {DENSE[unit][0]}")


def _file(contender: Contender, dim: int, share: Share) -> str:
    return f"{dim}-{share[0]:g}-{share[1]:g}-{contender.file}" if contender.variable else f"{dim}-{contender.file}"


@dataclass(frozen=True)
class Part:
    """One interleaved run. varies: in words. calls: of a chunk; rounds: where they are not those of the report."""

    name: str
    title: str
    varies: str
    entries: tuple[Entry, ...]
    scenarios: tuple[str, ...] = ("sequence", "step")
    batch: int = 1
    threads: int = 1
    rounds: int | None = None
    calls: int | None = None


def parts(dim: int, cores: int, tail: int) -> list[Part]:
    """All parts, in the order of the report. dim: the largest; cores: of the machine; tail: steps of the tail."""
    half = dim // 2
    found = [
        Part(
            f"unit-{unit}",
            f"{unit.upper()} by precision and size",
            f"precision and D; {unit.upper()}, beside the dense {DENSE[unit][0].upper()} of each size",
            tuple(_entries([*_native(unit), *_dense(unit)], unit, (dim // 4, half, dim))),
            ("sequence",),
        )
        for unit in UNITS
    ]
    found.append(
        Part(
            "backend", "By backend", "what runs the same file: our kernels, ONNX Runtime with our op, without it",
            tuple(each for unit in UNITS for each in _entries(_backends(unit), unit, (half,))),
        )
    )  # fmt: skip
    found += [
        Part(
            f"peers-{size}", f"Beside what else there is, D = {size}", "the engine and form of dense units",
            tuple(_entries([*_chosen(BASE_UNIT, "native f32 + table", "native int8 + table"), *known.peers()],
                           BASE_UNIT, (size,))),
            ("sequence", "step") if size == half else ("sequence",),
        )
        for size in (half, dim)
    ]  # fmt: skip
    few = [
        *_chosen(BASE_UNIT, "native f32", "native f32 + table", "native int8 + table", f"onnxruntime {CUSTOM_OP}"),
        *_chosen(BASE_UNIT, "onnxruntime gru", "torch gru"),
    ]
    around = tuple(_entries(few, BASE_UNIT, (half, dim)))
    found.append(Part("batch", f"{BATCH} sequences at once", "the batch", around, batch=BATCH))
    found += [
        Part(f"threads-{count}", f"{count} threads", "threads, of every contender", around, threads=count)
        for count in sorted({min(2, cores), cores} - {1})
    ]
    writing = [*_native(BASE_UNIT), *few[3:]]
    found.append(
        Part("writing", "Writing", "what is done: each symbol is chosen from the prediction before",
             tuple(_entries(writing, BASE_UNIT, (half, dim))), ("generate",))
    )  # fmt: skip
    found.append(
        Part("size", "Cost against D", "D",
             tuple(_entries(_chosen(BASE_UNIT, "native f32", "native int8 + table", "onnxruntime gru"), BASE_UNIT,
                            [max(2, int(each * dim)) for each in SIZES])), ("sequence",))
    )  # fmt: skip
    sweep = _chosen(BASE_UNIT, "native f32", "native f32 + table", "native int8 + table")
    found.append(
        Part("share", "Cost against m", "m, the same at every step",
             (*(each for share in SHARES for each in _entries(sweep, BASE_UNIT, (dim,), (share, share))),
              *_entries(_dense(BASE_UNIT), BASE_UNIT, (dim,))), ("sequence",))
    )  # fmt: skip
    found.append(Part("cold", "Cold and warm caches", "what the caches hold before a step", around, ("step", COLD)))
    rounds = min(TAIL_ROUNDS, tail)
    found.append(
        Part("tail", f"{tail:,} steps", "nothing: single steps, many of them",
             tuple(_entries([*few[1:]], BASE_UNIT, (half,))), ("step",), rounds=rounds, calls=-(-tail // rounds))
    )  # fmt: skip
    return found


def _native(unit: str) -> list[Contender]:
    return [each for each in known.contenders(unit) if each.engine == "native"]


def _dense(unit: str) -> list[Contender]:
    return _chosen(unit, f"onnxruntime {DENSE[unit][0]}")


def _backends(unit: str) -> list[Contender]:
    engine = "onnxruntime"
    plain = _chosen(unit, "native f32", "native int8 + table", f"{engine} {CUSTOM_OP}")
    return [*plain, known.narrow_op(unit, "int8"), *_chosen(unit, f"{engine} function", f"{engine} bucketed"),
            *_dense(unit)]  # fmt: skip


def _chosen(unit: str, *names: str) -> list[Contender]:
    return known.choose(known.contenders(unit), names)


def _entries(
    contenders: Sequence[Contender], unit: str, dims: Sequence[int], share: Share = BASE_SHARE
) -> Iterator[Entry]:
    for dim in dims:
        for each in contenders:
            yield Entry.of(each, unit, dim, share)
