"""Europarl, Czech and German: bits per character against computation, for RNN, "guide" and "learn"."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale


def _rows(corpus: str, language: str) -> tuple[Row, ...]:
    where = {"corpus": corpus}
    guide = {"setting": "guide", "guide": " ", "guide_target": 0.8}
    learn = [
        Row(f"{language}, learn {share}", "vcrnn", {**where, "target": share}, series="learn") for share in (0.3, 0.5)
    ]
    guided = [
        Row(f"{language}, guide {share}", "vcrnn", {**where, **guide, "target": share}, series="guide")
        for share in (0.2, 0.4)
    ]
    dense = [
        Row(f"{row.name.replace('learn', 'RNN like learn')}", "rnn", where, matches=row.name, series="RNN")
        for row in learn
    ]
    return (*learn, *guided, *dense, Row(f"{language}, RNN of the same D", "rnn", where, series="RNN"))


EUROPARL = Experiment(
    name="europarl",
    title="Europarl: Czech and German by characters",
    about="A VCRNN that learns where to compute (`learn`), one that is told to compute at the ends of words (`guide`: "
    "m of 0.8 on a space and of the figure named elsewhere), and RNNs of several sizes.",
    settings={},
    rows=(*_rows("europarl-cs", "Czech"), *_rows("europarl-de", "German")),
    scales={
        "machine": Scale({"dim": 256, "epochs": 1.0, "batch": 16}, characters=5_000_000, held_out=200_000),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
)
