"""The design of a full report: its parts, and what each varies around a base point.

Not every combination is measured. The base point is a VCGRU, batch 1, one thread, m evenly spread over 0.2 to 0.6. Each
part varies one or two settings, and includes the dense models that its ratios refer to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vcdeploy.bench import engines as known
from vcdeploy.bench.defaults import M_RANGE, UNIT
from vcdeploy.bench.engines import CUSTOM_OP, Engine
from vcdeploy.bench.scenarios import COLD
from vcdeploy.spec import UNITS, VARIABLE_UNITS

Range = tuple[float, float]

M_VALUES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
SIZES = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0)  # of the largest D
BATCH = 8
STEPS = 50  # of a sequence
TAIL_ROUNDS = 100  # each with a hundredth of the steps


@dataclass(frozen=True)
class Entry:
    """An engine at one size and, for a variable unit, one range of m. unit: the variable unit it is compared with."""

    label: str
    engine: Engine
    unit: str
    dim: int
    m_range: Range
    baseline: str

    @classmethod
    def of(cls, engine: Engine, unit: str, dim: int, m_range: Range) -> Entry:
        place = f"{unit}-{dim}"
        varied = f", m {m_range[0]:g}" if engine.variable and m_range[0] == m_range[1] else ""
        renamed = replace(engine, name=f"{place}{varied}: {engine.name}", file=_file(engine, dim, m_range))
        return cls(engine.name, renamed, unit, dim, m_range, f"{place}: onnxruntime {UNITS[unit].dense[0]}")


def _file(engine: Engine, dim: int, m_range: Range) -> str:
    return f"{dim}-{m_range[0]:g}-{m_range[1]:g}-{engine.file}" if engine.variable else f"{dim}-{engine.file}"


@dataclass(frozen=True)
class Part:
    """One interleaved run. varies: a description. calls: per chunk. rounds: if different from the report's."""

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
    """All parts, in report order. dim: the largest D; cores: of the machine; tail: steps of the tail part."""
    half = dim // 2
    found = [
        Part(
            f"unit-{unit}",
            f"{unit.upper()} by precision and size",
            f"precision and D; {unit.upper()}, and the dense {UNITS[unit].dense[0].upper()} of each size",
            tuple(_entries([*_native(unit), *_dense(unit)], unit, (dim // 4, half, dim))),
            ("sequence",),
        )
        for unit in VARIABLE_UNITS
    ]
    found.append(
        Part(
            "backend", "By backend", "the backend of the same model: our kernels, ONNX Runtime with our op and without",
            tuple(each for unit in VARIABLE_UNITS for each in _entries(_backends(unit), unit, (half,))),
        )
    )  # fmt: skip
    found += [
        Part(
            f"peers-{size}", f"Other engines, D = {size}", "the engine and the form of the dense unit",
            tuple(_entries([*_chosen(UNIT, "native f32 + table", "native int8 + table"), *known.peers()],
                           UNIT, (size,))),
            ("sequence", "step") if size == half else ("sequence",),
        )
        for size in (half, dim)
    ]  # fmt: skip
    few = [
        *_chosen(UNIT, "native f32", "native f32 + table", "native int8 + table", f"onnxruntime {CUSTOM_OP}"),
        *_chosen(UNIT, "onnxruntime gru", "torch gru"),
    ]
    around = tuple(_entries(few, UNIT, (half, dim)))
    found.append(Part("batch", f"{BATCH} sequences at once", "the batch", around, batch=BATCH))
    found += [
        Part(f"threads-{count}", f"{count} threads", "the threads of every engine", around, threads=count)
        for count in sorted({min(2, cores), cores} - {1})
    ]
    generating = [*_native(UNIT), *few[3:]]
    found.append(
        Part("generation", "Generation", "the call: each symbol is sampled from the previous prediction",
             tuple(_entries(generating, UNIT, (half, dim))), ("generate",))
    )  # fmt: skip
    found.append(
        Part("size", "Cost against D", "D",
             tuple(_entries(_chosen(UNIT, "native f32", "native int8 + table", "onnxruntime gru"), UNIT,
                            [max(2, int(each * dim)) for each in SIZES])), ("sequence",))
    )  # fmt: skip
    sweep = _chosen(UNIT, "native f32", "native f32 + table", "native int8 + table")
    found.append(
        Part("m", "Cost against m", "m, the same at every step",
             (*(each for m in M_VALUES for each in _entries(sweep, UNIT, (dim,), (m, m))),
              *_entries(_dense(UNIT), UNIT, (dim,))), ("sequence",))
    )  # fmt: skip
    found.append(Part("cold", "Cold and warm caches", "the state of the caches before a step", around, ("step", COLD)))
    rounds = min(TAIL_ROUNDS, tail)
    found.append(
        Part("tail", f"{tail:,} steps", "nothing: many single steps",
             tuple(_entries([*few[1:]], UNIT, (half,))), ("step",), rounds=rounds, calls=-(-tail // rounds))
    )  # fmt: skip
    return found


def _native(unit: str) -> list[Engine]:
    return [each for each in known.engines(unit) if each.runtime == "native"]


def _dense(unit: str) -> list[Engine]:
    return _chosen(unit, f"onnxruntime {UNITS[unit].dense[0]}")


def _backends(unit: str) -> list[Engine]:
    runtime = "onnxruntime"
    plain = _chosen(unit, "native f32", "native int8 + table", f"{runtime} {CUSTOM_OP}")
    return [*plain, known.narrow_op(unit, "int8"), *_chosen(unit, f"{runtime} function", f"{runtime} bucketed"),
            *_dense(unit)]  # fmt: skip


def _chosen(unit: str, *names: str) -> list[Engine]:
    return known.choose(known.engines(unit), names)


def _entries(engines: Sequence[Engine], unit: str, dims: Sequence[int], m_range: Range = M_RANGE) -> Iterator[Entry]:
    for dim in dims:
        for each in engines:
            yield Entry.of(each, unit, dim, m_range)
