"""Penn Treebank by characters: every unit of the paper at the same rnn_d."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

CHARACTERS = Experiment(
    name="characters",
    title="Penn Treebank by characters",
    about="Does a unit that chooses its computation predict better than a dense one of the same rnn_d? "
    "The VCGRU is trained first; what it spends on the validation text sets the size of all others. Those called "
    "smaller spend as much, too: a larger share of a smaller state.",
    settings={"corpus": "ptb"},
    rows=(
        Row("VCGRU", "vcgru", {"target": 0.4}),
        Row("GRU", "gru", matches="VCGRU"),
        Row("RNN", "rnn", matches="VCGRU"),
        Row("VCRNN", "vcrnn", {"budget": 0.44}, matches="VCGRU"),
        Row("LSTM", "lstm", matches="VCGRU"),
        Row("CRNN", "crnn", matches="VCGRU"),
        Row("VCGRU, smaller", "vcgru", {"budget": 0.63}, matches="VCGRU"),
        Row("VCRNN, smaller", "vcrnn", {"budget": 0.63}, matches="VCGRU"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 5.0}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    classes=True,
)
