"""Penn Treebank by characters: every unit of the paper at the same rnn_d."""

from dataclasses import replace

from vcdeploy.bench.paper.experiment import SMALL, Experiment, Row, Scale

CHARACTERS = Experiment(
    name="characters",
    title="Penn Treebank by characters",
    about="Does a unit that chooses its computation predict better than a dense one of the same rnn_d? "
    "The VCGRU is trained first; what it spends on the validation text sets the size of all others.",
    settings={"corpus": "ptb"},
    rows=(
        Row("VCGRU", "vcgru", {"target": 0.4}),
        Row("GRU", "gru", matches="VCGRU"),
        Row("RNN", "rnn", matches="VCGRU"),
        Row("VCRNN", "vcrnn", {"budget": 0.44}, matches="VCGRU"),
        Row("LSTM", "lstm", matches="VCGRU"),
        Row("CRNN", "crnn", matches="VCGRU"),
    ),
    scales={
        "machine": Scale({"dim": 128, "epochs": 1.0, **SMALL}, characters=1_500_000, held_out=100_000),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    classes=True,
)

LONGER = replace(
    CHARACTERS,
    name="longer",
    title="Penn Treebank by characters, trained longer",
    about="The same rows on the whole text, three times: what a unit gains by choosing grows with training.",
    scales={
        "machine": Scale({"dim": 128, "epochs": 3.0, "lr": 4e-3}, held_out=200_000),
        "paper": Scale({"dim": 1024, "epochs": 30.0}),
    },
)
