"""Render the document of a full report as text, tables and figures, and write its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vcdeploy.analysis import chart
from vcdeploy.analysis.document import Figure, Section, Table, markdown, page
from vcdeploy.bench import fits
from vcdeploy.bench.design import STEPS
from vcdeploy.bench.engines import RUNTIMES
from vcdeploy.bench.scenarios import COLD
from vcdeploy.files import write_atomically
from vcdeploy.spec import DENSE_UNITS

HEADING = "Speed of variable-computation models on this machine"
CALLS = {
    "sequence": f"{STEPS} symbols/call",
    "step": "one symbol/call",
    "generate": "each symbol sampled from the previous prediction",
    COLD: "one symbol/call, caches cold",
}
BUSY = 0.5  # load average at the start of a report

Part = dict[str, Any]
Found = dict[str, Any]
Shown = list[str | Table | Figure]

UNITS = (
    "Each unit in our kernels, by precision of the weights, compared with the dense unit of its kind in ONNX Runtime. "
    "m is evenly spread over 0.2 to 0.6. `table`: the products of the input side are looked up, not computed."
)
BACKENDS = (
    "The same model in our kernels; in ONNX Runtime with our custom op, which has the same kernels; in ONNX Runtime "
    "without it, on the function body stored in the file, which is dense; and exported with `--bucketed`, which skips "
    "in any runtime."
)
PEERS = (
    "Dense units of the same size in other engines, and the faster forms that these offer. int8 in ONNX Runtime is "
    "`onnxruntime.quantization.quantize_dynamic`, which supports LSTM and leaves GRU and RNN in float32; in PyTorch it "
    "is `torch.ao.quantization.quantize_dynamic`. Compiled is `torch.compile` with its defaults, which does not "
    "compile nn.GRU itself; compilation time is not counted. The prediction quality of other units and precisions is "
    "not compared here."
)
GROWTH = (
    "µs = c · {name}^exponent, fitted by least squares over logarithms, {call}. The ideal is 2, since a step "
    "multiplies matrices of a × a. Fixed costs of a step (the output layer, the scheduler, the call) make it smaller; "
    "matrices that no longer fit the caches make it larger. {dense}"
)
COLD_WORDS = (
    "Single steps. Warm: consecutive steps, as in generation. Cold: before each step, untimed, twice the size of the "
    "largest cache is rewritten, so that weights, program and interpreter come from memory, as after other work."
)
TAIL = (
    "Enough single steps to show rare disturbances; Python's garbage collector is off, but nothing else. Rare events "
    "differ from run to run, so no speedups are given."
)
MODELS = (
    "All engines run whole language models with random weights and 50 symbols, called from Python through one "
    "interface. The base point is a VCGRU, batch 1, one thread, m evenly spread over 0.2 to 0.6; each part varies only "
    "what the table lists."
)
METHOD = (
    "A part is measured in {visits} visits, with all other parts in between. A visit is one interleaved run: every "
    "engine has its own process, pinned to the same cores, and they take turns, {rounds} rounds of about {ms:.0f} ms "
    "each. µs are those of the fastest round, the median over its calls: other work on the machine makes rounds "
    "slower, for a moment or a minute, and never faster. A speedup is the dense baseline's µs divided by the engine's, "
    "in the same part and for the same kind of call."
)
REPRODUCIBLE = (
    "A speedup with ≈ may not be reproduced by another run: one of the two engines reads more than half of the "
    "last-level cache at each step, or everything from memory, and its speed depends on what else shares them; or the "
    "threads leave no core to the rest of the system; or it is a single step of PyTorch, which is mostly overhead that "
    "differs from process to process; or no second visit came within 10 % of the fastest round of one of the two."
)


def write(document: dict[str, Any], folder: Path) -> list[Path]:
    """Write report.json, report.md with its figures, and report.html."""
    opening, sections = content(document)
    figures = [part for section in sections for part in section.parts if isinstance(part, Figure)]
    files = {
        "report.json": json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n",
        "report.md": markdown(HEADING, opening, sections),
        "report.html": page(HEADING, opening, sections),
        **{f"{each.name}.svg": each.svg for each in figures},
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]


def content(document: dict[str, Any]) -> tuple[Shown, list[Section]]:
    """The opening and the sections, about one per measured part."""
    parts = document["parts"]
    by_kind: dict[str, list[Part]] = {}  # by the part's name up to its first hyphen
    for part in parts:
        by_kind.setdefault(part["part"].partition("-")[0], []).append(part)
    sections = []
    for kind, alike in by_kind.items():
        if kind in _TOGETHER:
            sections.append(_TOGETHER[kind](alike))
        else:
            sections += [_SECTIONS.get(kind, _plain)(part) for part in alike]
    return _opening(document), [*sections, _energy(document), _method(document)]


def in_short(document: dict[str, Any]) -> list[str]:
    """The summary, as lines for a terminal."""
    rows = _highlights(document["parts"])
    return [f"{name}: {us} µs/step, speedup {times} vs the dense unit" for name, us, times in rows]


def _opening(document: dict[str, Any]) -> Shown:
    machine, parts = document["machine"], document["parts"]
    caches = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    packages = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    sets = ", ".join(machine.get("instruction_sets", [])) or "no native kernels"
    minutes = sum(part["seconds"] for part in parts) / 60
    found: Shown = [
        f"{machine['processor']}, {machine['cores']} cores, {caches}; {machine['system']}; {sets}. {packages}."
    ]
    found.append(
        f"Generated by `{document['command']}`, started {document['date']}; measuring took {minutes:.1f} minutes."
    )
    if document["missing"]:
        found.append(f"Not measured yet: {', '.join(document['missing'])}. The same command continues with them.")
    if machine["load"] and machine["load"] > BUSY:
        found.append(f"Other programs were running shortly before the start (load {machine['load']}).")
    if highlights := _highlights(parts):
        caption = "Summary: speedup vs the dense unit of the same size in ONNX Runtime, same call"
        found.append(Table(caption, ("", "µs/step", "speedup"), highlights))
    return found


def _highlights(parts: Sequence[Part]) -> list[list[str]]:
    rows = []
    for part in parts:
        if not part["part"].startswith("unit-"):
            continue
        size = max(each["dim"] for each in part["engines"])
        for each in part["engines"]:
            if each["dim"] == size and each["label"] in ("native f32 + table", "native int8 + table"):
                found = each["scenarios"]["sequence"]
                name = f"{each['beside'].upper()}-{size}, {_label(each['label'])}, {CALLS['sequence']}"
                rows.append([name, *_figures(found)])
    return rows


def _units(parts: Sequence[Part]) -> Section:
    """Precision and size: one table per unit and call, and a figure of the speedup against D."""
    shown: Shown = [UNITS]
    series, rows = [], []
    for part in parts:
        unit = part["engines"][0]["beside"].upper()
        for label in ("native f32 + table", "native int8 + table"):
            at = [each for each in part["engines"] if each["label"] == label]
            if at:
                points = sorted((each["dim"], each["scenarios"]["sequence"]["fastest_ratio"]) for each in at)
                series.append(chart.Series(f"{unit}, {_label(label)}", points))
                rows.append([f"{unit}, {_label(label)}", *(f"{y:.1f}" for _, y in points)])
    if series:
        dims = sorted({int(x) for each in series for x, _ in each.points})
        caption = f"Speedup vs the dense unit of the same size in ONNX Runtime, {CALLS['sequence']}, against D."
        across = chart.Axis("D", [(each, f"{each:,}") for each in dims])
        drawn = chart.lines(series, across, chart.Axis("speedup", log=False), caption)
        shown.append(Figure("units", caption, drawn, Table(caption, ("", *(f"D = {each}" for each in dims)), rows)))
    shown += [_by_size(part, scenario) for part in parts for scenario in part["settings"]["scenarios"]]
    return Section("Units, precision and size", shown)


def _by_size(part: Part, scenario: str) -> Table:
    """Rows: engines; columns: µs and speedup at each D."""
    dims = sorted({each["dim"] for each in part["engines"]})
    columns = ["", *(f"{what}, D = {dim}" for dim in dims for what in ("µs", "speedup"))]
    rows = []
    for label in dict.fromkeys(each["label"] for each in part["engines"]):
        by_dim = {each["dim"]: each for each in part["engines"] if each["label"] == label}
        rows.append([_label(label), *(cell for dim in dims for cell in _cells(by_dim.get(dim), scenario))])
    return Table(f"{part['title']}: µs/step, {CALLS[scenario]}", columns, rows)


def _cells(engine: Found | None, scenario: str) -> list[str]:
    """µs and speedup of an engine in a scenario, or dashes."""
    return _figures(engine["scenarios"].get(scenario) if engine else None)


def _figures(found: Found | None) -> list[str]:
    """µs and speedup."""
    return [_three_digits(found["fastest"]), _times(found)] if found else ["–", "–"]


def _plain(part: Part) -> Section:
    """Engines and sizes, one table per call."""
    shown: Shown = [f"What varies: {part['varies']}. Everything else is as in the base point."]
    shown += [_by_size(part, scenario) for scenario in part["settings"]["scenarios"]]
    return Section(part["title"], [*shown, *_left_out(part)])


def _by_call(part: Part, engines: Sequence[Found], caption: str) -> Table:
    """Rows: engines; columns: µs and speedup in each call."""
    names = part["settings"]["scenarios"]
    columns = ["", *(f"{what}, {CALLS[name]}" for name in names for what in ("µs", "speedup"))]
    rows = [[_label(each["label"]), *(cell for name in names for cell in _cells(each, name))] for each in engines]
    return Table(caption, columns, rows)


def _backends(part: Part) -> Section:
    shown: Shown = [BACKENDS]
    for unit in dict.fromkeys(each["beside"] for each in part["engines"]):
        of_unit = [each for each in part["engines"] if each["beside"] == unit]
        shown.append(_by_call(part, of_unit, f"{unit.upper()}-{of_unit[0]['dim']} by backend, µs/step"))
    return Section(part["title"], [*shown, *_left_out(part)])


def _peers(parts: Sequence[Part]) -> Section:
    shown: Shown = [PEERS]
    scenario = "sequence"
    for part in parts:
        size = part["engines"][0]["dim"]
        measured = [each for each in part["engines"] if scenario in each["scenarios"]]
        bars = [
            (_label(each["label"]), each["scenarios"][scenario]["fastest"], each["runtime"] == "native")
            for each in measured
        ]
        caption = f"µs/step, {CALLS[scenario]}, D = {size}: shorter is faster; our kernels in the darker colour."
        title = f"VCGRU-{size} and other engines: speedup vs ONNX Runtime's GRU-{size}, same call"
        table = _by_call(part, part["engines"], title)
        shown += [Figure(part["part"], caption, chart.bars(bars, "µs/step", caption), table), table]
        for each in part["engines"]:
            for name, why in each["not_measured"].items():
                shown.append(f"{_label(each['label'])}, {CALLS[name]}: not measured: {why}.")
        shown += _left_out(part)
    return Section("Other engines", shown)


def _left_out(part: Part) -> Shown:
    """One line per engine that is missing, regardless of units and sizes."""
    lines = [f"Left out: {_label(name.partition(': ')[2] or name)}: {why}." for name, why in part["left_out"].items()]
    return list(dict.fromkeys(lines))


def _size(part: Part) -> Section:
    return _growth(part, "D", lambda each: float(each["dim"]), "The same holds for dense models.")


def _fraction(part: Part) -> Section:
    dense = "For a dense model, which computes everything regardless of m, it is 0."
    return _growth(part, "m", lambda each: float(each["m_range"][0]) if each["m_range"] else None, dense)


def _growth(part: Part, name: str, place: Callable[[Found], float | None], dense: str) -> Section:
    """Cost against D or m: one curve per engine with its fitted exponent; place: the x of an engine.

    An engine without an x costs the same everywhere: it gets a level line and no exponent.
    """
    found = [(_label(each["label"]), place(each), each["scenarios"]["sequence"]) for each in part["engines"]]
    places = sorted({at for _, at, _ in found if at is not None})
    curves: dict[str, dict[float, Found]] = {}
    for label, at, figures in found:
        curves.setdefault(label, {}).update(dict.fromkeys(places, figures) if at is None else {at: figures})
    level = {label for label, at, _ in found if at is None}
    exponents, series = [], []
    for label, curve in curves.items():
        points = [(at, curve[at]["fastest"]) for at in places if at in curve]
        if label in level:
            series.append(chart.Series(label, [points[0], points[-1]], False))
            continue
        whole, upper = _fit(points), _fit(points[len(points) // 2 - 1 :])
        row = [label]
        for fit in (whole, upper):
            row += [f"{fit.exponent:.2f}", f"{fit.low:g} to {fit.high:g}", f"{100 * fit.off:.0f} %"]
        exponents.append([*row, "2"])
        series.append(chart.Series(f"{label}: {name}^{whole.exponent:.2f}", points))
    x_last, y_last = series[0].points[-1]
    ideal = [(x, y_last * (x / x_last) ** 2) for x in (places[0], x_last)]
    series.append(chart.Series(f"{name}², the ideal", ideal, False))
    caption = f"µs/step against {name}, both on logarithmic axes, with the exponent of each; {name}² for comparison."
    drawn = chart.lines(series, chart.Axis(name, [(x, f"{x:g}") for x in places]), chart.Axis("µs/step"), caption)
    # Columns: engines; rows: places.
    times = [[f"{x:g}", *(cell for curve in curves.values() for cell in _figures(curve.get(x)))] for x in places]
    columns = (name, *(f"{label}, {what}" for label in curves for what in ("µs", "speedup")))
    numbers = Table(f"µs/step, and speedup vs the dense GRU of the same D, against {name}", columns, times)
    headings = ("", "exponent", "over", "largest error", "upper part", "over", "largest error", "ideal")
    return Section(
        part["title"],
        [
            GROWTH.format(name=name, call=CALLS["sequence"], dense=dense),
            Figure(part["part"], caption, drawn, numbers),
            Table(f"Exponents of the cost against {name}", headings, exponents),
            numbers,
            *_left_out(part),
        ],
    )


def _fit(points: Sequence[tuple[float, float]]) -> fits.Fit:
    return fits.fit([x for x, _ in points], [y for _, y in points])


def _cold(part: Part) -> Section:
    rows = []
    for each in part["engines"]:
        warm, cold = each["scenarios"].get("step"), each["scenarios"].get(COLD)
        if warm and cold:
            cells = [*_figures(warm), *_figures(cold)]
            slower = f"{cold['fastest'] / warm['fastest']:.1f}"
            rows.append([f"{_label(each['label'])}, D = {each['dim']}", *cells, slower])
    columns = ("", "µs, warm", "speedup", "µs, cold", "speedup", "cold : warm")
    table = Table(f"Warm and cold caches, {CALLS['step']}", columns, rows)
    return Section(part["title"], [COLD_WORDS, table, *_left_out(part)])


def _tail(part: Part) -> Section:
    places = (0.5, 0.9, 0.99, 0.999, 0.9999)
    series, rows = [], []
    for each in part["engines"]:
        found = each["scenarios"]["step"]
        if "tail" in found:
            quantiles = dict(found["tail"]["quantiles"])
            points = [(1 / (1 - place), value) for place, value in quantiles.items() if place >= 0.5]
            series.append(chart.Series(_label(each["label"]), points))
            cells = [_three_digits(value) for value in (*(quantiles[at] for at in places), found["tail"]["max"])]
            rows.append([_label(each["label"]), f"{found['calls']:,}", *cells])
    if not rows:
        return Section("Tail latency", ["Too few steps to report tail latency.", *_left_out(part)])
    size = part["engines"][0]["dim"]
    caption = f"Latency of single steps by percentile, D = {size}."
    across = chart.Axis("of the steps", [(1 / (1 - at), f"{100 * at:g} %") for at in places])
    columns = ("", "steps", *(f"p{100 * at:g}" for at in places), "max")
    table = Table(f"µs of single steps, D = {size}, by percentile", columns, rows)
    figure = Figure("tail", caption, chart.lines(series, across, chart.Axis("µs"), caption), table)
    return Section("Tail latency", [TAIL, figure, table, *_left_out(part)])


def _energy(document: dict[str, Any]) -> Section:
    rows = []
    for part in document["parts"]:
        for each in part["engines"]:
            found = each["scenarios"].get("sequence")
            if found and "joules" in found and part["part"].startswith(("unit-", "peers-")):
                rows.append([f"{_label(each['label'])}, {each['unit']}-{each['dim']}", f"{1e6 * found['joules']:.3g}"])
    if not rows:
        why = document["energy"] or "no part with energy figures was measured"
        return Section("Energy", [f"Not measured: {why}."])
    words = "From the processor's counters (RAPL): all of its cores, including their idle power."
    return Section("Energy", [words, Table(f"µJ/step, {CALLS['sequence']}", ("", "µJ"), rows)])


def _method(document: dict[str, Any]) -> Section:
    settings = document["settings"]
    method = METHOD.format(ms=1e3 * settings["chunk_seconds"], visits=settings["visits"], rounds=settings["rounds"])
    rows = []
    for part in document["parts"]:
        rows.append([part["title"], part["varies"], str(len(part["engines"])), f"{part['seconds']:.0f}"])
    columns = ("", "what varies", "engines", "seconds")
    return Section("How it was measured", [MODELS, method, REPRODUCIBLE, Table("The parts", columns, rows)])


_TOGETHER: dict[str, Callable[[Sequence[Part]], Section]] = {"unit": _units, "peers": _peers}
_SECTIONS: dict[str, Callable[[Part], Section]] = {
    "backend": _backends,
    "size": _size,
    "m": _fraction,
    "cold": _cold,
    "tail": _tail,
}


def _label(label: str) -> str:
    """The display name of an engine."""
    return " ".join(RUNTIMES.get(word, word.upper() if word in DENSE_UNITS else word) for word in label.split())


def _three_digits(value: float) -> str:
    """Three significant digits, more only before the decimal point."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _times(found: Found) -> str:
    ratio = found.get("fastest_ratio")
    if ratio is None:
        return "–"
    return ("" if found["reproducible"] else "≈ ") + _three_digits(ratio)
