"""Irish tunes: a VCRNN and an RNN of the same rnn_d, and where in a tune the VCRNN computes."""

from vcdeploy.bench.paper.experiment import Cited, Experiment, Row, Scale

MUSIC = Experiment(
    name="music",
    title="Irish tunes",
    about="Perplexity of the next symbol of a tune. The paper used tunes from thesession.org, whose terms now ask for "
    "permission first; these are the traditional tunes that come with music21, a fifth as many symbols: compare the "
    "order of figures, not single values.",
    settings={"corpus": "irish"},
    rows=(
        Row("VCRNN", "vcrnn", {"target": 0.4}),
        Row("RNN", "rnn", matches="VCRNN"),
    ),
    scales={
        "machine": Scale({"dim": 128, "epochs": 6.0, "lr": 2e-3}),
        "paper": Scale({"dim": 500, "epochs": 10.0}),
    },
    score="perplexity",
    classes=True,
    cited=(
        Cited("VCRNN-500", 233, "8.51", beside="VCRNN"),
        Cited("RNN-250", 250, "8.70", beside="RNN"),
        Cited("RNN-200", 200, "9.13"),
    ),
    cited_classes={
        "bar": "0.14",
        "rest": "0.34",
        "note length 1/2": "0.61",
        "note length 1": "0.39",
        "note length 3/2": "0.59",
        "note length 2": "0.44",
        "note length 3": "0.46",
        "note length 4": "0.57",
        "first of a repetition": "0.51",
        "repeated note": "0.45",
    },
    source="Its tables 1 and 2 and section 5.1: perplexity on its own test tunes, after training on 2.4 million "
    "symbols of 730 kinds; m on its validation tunes. Its note lengths are in quarters, ours in eighths. Of a "
    "repetition it counts the second note, here all but the first count. It has 0.77 for thirds of a quarter; here a "
    "triplet is a separate symbol before notes of their written length.",
)
