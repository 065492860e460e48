"""How a schedule is learnt: what decides whether a VCRNN is better than the RNN of the same rnn_d?"""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

_TARGET = {"target": 0.4}

PRESSURE = Experiment(
    name="pressure",
    title="How a schedule is learnt, and pressed",
    about="A VCRNN on Penn Treebank by characters, trained in several ways, and RNNs with the rnn_d of two of them. "
    "The first is trained as everywhere else: every m is pulled down equally, by a weight that is adjusted to reach a "
    "mean m of 0.4, and the scheduler has a fifth of the learning rate of the other weights. Fixed: the paper's "
    "penalty, a weight of 0.3 on the distance from 0.4, which m follows only in part. The others are like the first, "
    "with one change each.",
    settings={"corpus": "ptb"},
    rows=(
        Row("VCRNN", "vcrnn", _TARGET),
        Row("RNN", "rnn", matches="VCRNN"),
        Row("VCRNN, scheduler at the full rate", "vcrnn", {**_TARGET, "scheduler_rate": 1.0}),
        Row("VCRNN, scheduler at 0.4 of it", "vcrnn", {**_TARGET, "scheduler_rate": 0.4}),
        Row("VCRNN, scheduler at 0.05 of it", "vcrnn", {**_TARGET, "scheduler_rate": 0.05}),
        Row("VCRNN, fixed", "vcrnn", {**_TARGET, "weight": 0.3}),
        Row("RNN like fixed", "rnn", matches="VCRNN, fixed"),
        Row("VCRNN, lambda begins at 1", "vcrnn", {**_TARGET, "sharpness_start": 1.0}),
        Row("VCRNN, lambda ends at 0.3", "vcrnn", {**_TARGET, "sharpness_growth": 0.03, "sharpness_end": 0.3}),
        Row("VCRNN, rate × 2", "vcrnn", {**_TARGET, "lr": 4e-3}),
        Row("RNN, rate × 2", "rnn", {"lr": 4e-3}, matches="VCRNN"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 2.0}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
)
