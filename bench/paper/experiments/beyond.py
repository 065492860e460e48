"""Beyond the paper: the VCLSTM, two layers, and a scheduler trained on the entropy of the prediction."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

BEYOND = Experiment(
    name="beyond",
    title="Beyond the paper: VCLSTM, two layers, entropy",
    about="Penn Treebank by characters. Variable units are compared with dense ones of the same rnn_d. The smaller "
    "VCGRU of two layers has the same rnn_d as the larger: it updates a larger fraction of a smaller state.",
    settings={"corpus": "ptb"},
    rows=(
        Row("VCLSTM, learn", "vclstm", {"target": 0.4}),
        Row("LSTM", "lstm", matches="VCLSTM, learn"),
        Row("VCGRU, entropy", "vcgru", {"target": 0.4, "setting": "entropy"}),
        Row("VCGRU, 2 layers", "vcgru", {"target": 0.4, "layers": 2}),
        Row("GRU, 2 layers", "gru", {"layers": 2}, matches="VCGRU, 2 layers"),
        Row("VCGRU, 2 layers, smaller", "vcgru", {"budget": 0.63, "layers": 2}, matches="VCGRU, 2 layers"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 2.0}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    classes=True,
)
