"""Irish tunes: a VCRNN and an RNN of the same rnn_d, and where in a tune the VCRNN computes."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

MUSIC = Experiment(
    name="music",
    title="Irish tunes",
    about="Perplexity of the next symbol of a tune. The paper used tunes of thesession.org, whose terms now ask for "
    "permission first; these are the traditional tunes that come with music21, so that figures don't compare.",
    settings={"corpus": "irish"},
    rows=(
        Row("VCRNN", "vcrnn", {"target": 0.4}),
        Row("RNN", "rnn", matches="VCRNN"),
    ),
    scales={
        "machine": Scale({"dim": 128, "epochs": 6.0, "lr": 2e-3}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    score="perplexity",
    classes=True,
)
