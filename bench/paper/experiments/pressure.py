"""How a schedule is pressed: why is a VCRNN not ahead of the RNN of its rnn_d?"""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

_TARGET = {"target": 0.4}

PRESSURE = Experiment(
    name="pressure",
    title="How the schedule is pressed",
    about="A VCRNN on Penn Treebank by characters, trained in several ways, and the RNN with the rnn_d of the first. "
    "Steered: every m is pulled down alike, by a weight that is steered to the target. Fixed: the paper's penalty, a "
    "weight of 0.3 on the distance from the target. Then steered, with one thing changed.",
    settings={"corpus": "ptb"},
    rows=(
        Row("VCRNN, steered", "vcrnn", _TARGET),
        Row("RNN", "rnn", matches="VCRNN, steered"),
        Row("VCRNN, fixed", "vcrnn", {**_TARGET, "weight": 0.3}),
        Row("VCRNN, m begins at 0.9", "vcrnn", {**_TARGET, "initial_share": 0.9}),
        Row("VCRNN, lambda ends at 0.3", "vcrnn", {**_TARGET, "sharpness_growth": 0.03, "sharpness_end": 0.3}),
        Row("VCRNN, rate × 2", "vcrnn", {**_TARGET, "lr": 4e-3}),
        Row("RNN, rate × 2", "rnn", {"lr": 4e-3}, matches="VCRNN, steered"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 2.0}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    in_paper=False,
)
