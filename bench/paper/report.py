"""Results as Markdown: one table per experiment, with a column for the paper's figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from vcdeploy.analysis.chart import picture
from vcdeploy.analysis.pareto import front
from vcdeploy.bench import jsonl
from vcdeploy.bench.paper import plots, results
from vcdeploy.bench.paper.experiment import Experiment
from vcdeploy.bench.paper.experiments import EXPERIMENTS
from vcdeploy.corpora.classes import NOTE_LENGTH
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.training.config import RECIPE, TrainConfig

SCORES = {"bits": "bits per character", "bits_per_character": "bits per character", "perplexity": "perplexity"}
Results = Sequence[dict[str, Any]]  # of one row, by seed
OLD = " †"  # after the name of a row that was trained with an earlier recipe


def page(experiment: Experiment, scale: str, folder: Path) -> str | None:
    """The page of an experiment; None if it has no results."""
    rows = {row.name: results.of_row(folder, scale, experiment, row.name) for row in experiment.rows}
    made = [each for found in rows.values() for each in found]
    if not made:
        return None
    parts = [
        f"# {experiment.title}",
        experiment.about,
        _how(experiment, scale, made),
        _scores(experiment, rows),
        *_drawn(experiment, rows),
        *_cited(experiment),
    ]
    missing = [name for name, found in rows.items() if not found]
    if missing:
        parts.append(f"Not trained yet: {'; '.join(missing)}.")
    if experiment.classes and any("classes" in each for each in made):
        parts += ["## Mean m by class of the symbol read", _classes(rows, experiment.cited_classes)]
    if old := results.outdated(made):
        parts.append(
            f"{OLD.strip()} Trained with an earlier recipe ({_listed(map(str, old))}; now {RECIPE}): its figures may "
            "differ from today's. To train such a row again, remove its line."
        )
    parts += _traced(experiment, scale, folder)
    if by_epoch := _epochs(experiment, rows):
        parts += [f"## By epoch: {SCORES[experiment.score]}, valid", by_epoch]
    parts.append(_made(made, experiment))
    return "\n\n".join(parts) + "\n"


def write(scale: str, folder: Path) -> list[Path]:
    """Write the pages and figures of a scale next to its results."""
    written: dict[str, bytes] = {}
    for experiment in EXPERIMENTS.values():
        text = page(experiment, scale, folder)
        if text is not None:
            written[f"{experiment.name}.md"] = text.encode()
        figure = plots.against_computation(experiment, scale, folder)
        if figure is not None:
            written[f"{experiment.name}.svg"] = picture(figure, "svg")
    timed = sorted(jsonl.read(results.path(folder, scale, results.TIMES)), key=lambda each: str(each["text"]))
    if timed:
        by_text = {each["text"]: each for each in timed}
        written[f"{results.TIMES}.md"] = times(by_text).encode()
        written[f"{results.TIMES}.svg"] = picture(plots.fronts(by_text), "svg")
    if not written:
        raise VcdeployError(f"{folder / scale} holds no results: run `vcdeploy bench paper run` first")
    for name, content in written.items():
        write_atomically(folder / scale / name, content)
    return [folder / scale / name for name in written]


def _command(experiments: Iterable[str], scale: str, seeds: int) -> str:
    """The command that trains the rows of experiments."""
    words = ["vcdeploy bench paper run", *experiments]
    words += ["--scale", scale] if scale != "machine" else []
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return " ".join(words)


def _how(experiment: Experiment, scale: str, made: Results) -> str:
    """The command and the settings, from the actual runs."""
    seeds = max(each["seed"] for each in made) + 1
    config, corpus = made[0]["config"], made[0]["corpus"]
    rates = sorted({TrainConfig.from_json(each["config"]).peak_lr for each in made})
    rate = f"a peak learning rate of {rates[0]:.2g}"
    if len(rates) > 1:
        rate = (
            f"peak learning rates of {rates[0]:.2g} to {rates[-1]:.2g}, set by the row or lower for a state above 256"
        )
    command = _command([experiment.name], scale, seeds)
    size = experiment.scales[scale]
    read = f"{size.characters:,} characters" if size.characters else f"all {corpus['train']:,} symbols"
    often = "once" if config["epochs"] == 1 else f"{config['epochs']:g} times"
    held = f"the first {size.held_out:,} characters" if size.held_out else "all"
    return (
        f"    {command}\n\n"
        f"Scale `{scale}`: {read} of training text, read {often} by {_values(made, 'batch')} streams in segments of "
        f"{_values(made, 'bptt')}, Adam with {rate}; {held} of the validation and test texts. "
        f"{'Otherwise the' if len(rates) > 1 else 'The'} same for every row."
    )


def _values(made: Results, name: str) -> str:
    """The values of a setting: 4; 4 or 8; 4, 8 or 16."""
    return _listed(map(str, dict.fromkeys(each["config"][name] for each in made)))


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _scores(experiment: Experiment, rows: dict[str, Results]) -> str:
    score = SCORES[experiment.score]
    beside = {line.beside: f"{line.score} ({line.unit}, rnn_d {line.rnn_d})" for line in experiment.cited}
    head = ["", "D", "mean m", "spread", "rnn_d", "macs/step", "weights", f"{score}, valid", "test", "seeds"]
    lines = []
    for name, found in rows.items():
        if not found:
            continue
        test = [each["test"] for each in found]
        lines.append([
            name + OLD * bool(results.outdated(found)),
            f"{found[0]['config']['dim']:,}" + (f" × {n}" if (n := found[0]["config"]["layers"]) > 1 else ""),
            _mean((each["m"] for each in test), 2),
            _mean((each["m_spread"] for each in test), 2) if "classes" in found[0] else "",
            _mean((each["rnn_d"] for each in test), 1),
            _mean((each["macs"] for each in test), 0),
            f"{found[0]['weights']:,}",
            scored([each["valid"][experiment.score] for each in found]),
            scored([each[experiment.score] for each in test]),
            str(len(found)),
        ])  # fmt: skip
        if beside:
            lines[-1].append(beside.get(name, ""))
    return table([*head, "the paper's"] if beside else head, lines)


def _cited(experiment: Experiment) -> Iterator[str]:
    """The paper's figures that have no row here, and the source of all of them."""
    for corpus, curves in experiment.cited_curves.items():
        points = {
            name: ", ".join(f"{rnn_d:g}: {score:.2f}" for rnn_d, score in curve) for name, curve in curves.items()
        }
        yield table(["the paper's, " + corpus, f"rnn_d: {SCORES[experiment.score]}"], list(points.items()))
    others = [f"{line.score} ({line.unit}, rnn_d {line.rnn_d})" for line in experiment.cited if line.beside is None]
    if experiment.source:
        also = f" It also has {', '.join(others)}." if others else ""
        yield f"The paper's figures are for its own sizes and data. {experiment.source}{also}"


def _drawn(experiment: Experiment, rows: dict[str, Results]) -> Iterator[str]:
    """The figure of the score against rnn_d, if one of its series has results."""
    if any(row.series and rows[row.name] for row in experiment.rows):
        yield f"![{SCORES[experiment.score]} against rnn_d]({experiment.name}.svg)"


def _classes(rows: dict[str, Results], cited: Mapping[str, str]) -> str:
    """One line per class, one column per variable row: the mean over the seeds. cited: the paper's, by class."""
    variable = {name: found for name, found in rows.items() if found and "classes" in found[0]}
    ours = (each for found in variable.values() for each in found[0]["classes"])
    names = by_length(dict.fromkeys([*ours, *cited]))
    lines = []
    for each in names:
        cells = [
            _mean((one["classes"][each]["m"] for one in found if each in one["classes"]), 3)
            if each in found[0]["classes"]
            else ""
            for found in variable.values()
        ]
        lines.append([each, *cells, *([cited.get(each, "")] if cited else [])])
    return table(["test text", *variable, *(["the paper's"] if cited else [])], lines)


def by_length(names: Iterable[str]) -> list[str]:
    """Classes in the given order, but note lengths together, from short to long."""
    found = list(names)
    lengths = [name for name in found if name.startswith(NOTE_LENGTH)]
    ordered = sorted(lengths, key=lambda name: Fraction(name.removeprefix(NOTE_LENGTH)))
    others = [name for name in found if name not in lengths]
    at = found.index(lengths[0]) if lengths else 0
    return [*others[:at], *ordered, *others[at:]]


def _traced(experiment: Experiment, scale: str, folder: Path) -> Iterator[str]:
    """The figures that exist, and how they were generated."""
    file = results.path(folder, scale, results.TRACES)
    traces = {each["figure"]: each for each in jsonl.read(file)}
    for figure in experiment.traced:
        made = traces.get(figure.name)
        if made is None:
            continue
        seeds = sorted({each["seed"] for each in made["panels"]})
        yield f"## {figure.title}"
        yield f"    {made['command']}"
        yield f"![m over a text]({results.TRACES}/{figure.name}.png)"
        yield (
            f"Models of seed {' and '.join(map(str, seeds))}; {made['date'][:10]}. All figures: "
            f"[{file.name}]({file.name})."
        )


def _epochs(experiment: Experiment, rows: dict[str, Results]) -> str | None:
    """One line per epoch, one column per row: the mean over the seeds. None if there are too few epochs."""
    curves = {name: [each["curve"] for each in found] for name, found in rows.items() if found}
    epochs = [point["epoch"] for point in next(iter(curves.values()))[0]]  # the same for every row
    if len(epochs) < 3:
        return None
    lines = [
        [f"{epoch:g}", *(_mean((curve[at][experiment.score] for curve in found), 3) for found in curves.values())]
        for at, epoch in enumerate(epochs)
    ]
    return table(["epoch", *curves], lines)


def _made(made: Results, experiment: Experiment) -> str:
    """When, where and at what cost the rows were trained."""
    days = sorted({date.fromisoformat(each["date"][:10]) for each in made})
    when = f"{days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    hours = sum(each["cpu_seconds"] or 0 for each in made) / 3600
    machine, versions = made[0]["machine"], made[0]["versions"]
    cores = sorted({each["machine"]["cores"] for each in made})
    link = f"[{experiment.name}.jsonl]({experiment.name}.jsonl)"
    loads = [each["machine"]["load"] or 0 for each in made]
    return (
        f"rnn_d is the paper's count (a GRU as two Elman units, an LSTM as four); macs are exact. D of a matched row "
        f"follows from the rnn_d of the row it matches, on the validation text. ± is the deviation between seeds. "
        f"Trained on {when} in {hours:.2f} core-hours on {' or '.join(map(str, cores))} "
        f"core{'s' * (cores[-1] != 1)} of an {machine['processor']}, "
        f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}, PyTorch {versions['torch']}; load average "
        f"{min(loads):.1f} to {max(loads):.1f}. Every run, with its settings: {link}."
    )


def scored(values: Sequence[float]) -> str:
    """The mean, with the deviation between seeds if there are several."""
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def _mean(values: Iterable[float], digits: int) -> str:
    return f"{statistics.fmean(values):,.{digits}f}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = "|" + "---|" * len(head)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def times(documents: Mapping[str, dict[str, Any]]) -> str:
    """The page of bits against microseconds, by training text."""
    about = (
        "Models trained alike on the same text; each whole language model is timed at batch 1 on the test text: in our "
        'kernels, and a dense one also in ONNX Runtime. Where a table has "all active", it was measured before our '
        "kernels had dense units: the dense model is timed as a VCGRU of its size with m held at 1. "
        "A model is on the front of its kind (variable or dense) if no other of that kind beats it in both bits and "
        "microseconds (many characters/call), and on the front of all if no other model does. The numbers in the "
        "figure are D."
    )
    parts = [
        "# Bits against microseconds",
        "![bits per character against microseconds per character](microseconds.svg)",
        about,
        *(part for text, document in documents.items() for part in _timed(text, document)),
    ]
    return "\n\n".join(parts) + "\n"


def _timed(text: str, document: dict[str, Any]) -> Iterator[str]:
    """The section of one text."""
    models = document["models"]
    on_fronts = fronts(models)
    experiments = list(dict.fromkeys(each["experiment"] for each in models))
    settings, machine, file = document["settings"], document["machine"], f"{results.TIMES}.jsonl"
    head = ["model", "runs", "bits per character, test", "mean m", f"µs, {settings['steps']} characters/call",
            "on the front", "µs, one/call from Python"]  # fmt: skip
    lines = [
        [
            each["model"], each["runs"], f"{each['bits']:.3f}", f"{each['m']:.2f}",
            f"{each['microseconds']['sequence']:.2f}", on_fronts[place], f"{each['microseconds']['step']:.2f}",
        ]
        for place, each in enumerate(models)
    ]  # fmt: skip
    seeds = sorted({each["seed"] for each in models})
    yield f"## {text}"
    left_out = document["left_out"]
    yield (
        f"VCGRUs, GRUs and RNNs of {' and '.join(f'[{name}]({name}.md)' for name in experiments)}."
        + f" Left out because they can't run here: {', '.join(left_out)}." * bool(left_out)
    )
    yield (f"    {_command(experiments, document['scale'], seeds[-1] + 1)}\n    {document['command']}")
    yield table(head, lines)
    yield (
        f"Medians of {settings['rounds']} interleaved rounds, one process per engine, {settings['threads']} "
        f"thread{'s' * (settings['threads'] != 1)}, models of seed {' and '.join(map(str, seeds))}; "
        f"{document['date'][:10]}, {machine['cores']} cores of an {machine['processor']}, load before the run "
        f"{machine['load']}. All figures: [{file}]({file})."
    )


def fronts(models: Results) -> list[str]:
    """For each timed model, whether it is on the front of all models or of its kind."""
    found = [""] * len(models)
    kinds = [plots.kind(each) for each in models]
    for chosen, word in [*((each, "of its kind") for each in dict.fromkeys(kinds)), (None, "of all")]:
        places = [place for place, each in enumerate(kinds) if chosen in (each, None)]
        for each in front([plots.point(models[place]) for place in places]):
            found[places[each]] = word
    return found


def index(scale: str, folder: Path) -> list[tuple[Experiment, int, int]]:
    """For each experiment, the number of rows with a result and the number of rows."""
    return [
        (each, sum(bool(results.of_row(folder, scale, each, row.name)) for row in each.rows), len(each.rows))
        for each in EXPERIMENTS.values()
    ]
