"""Penn Treebank by characters: every unit of the paper at the same rnn_d, and a larger GRU for timing."""

from vcdeploy.bench.paper.experiment import Cited, Experiment, Row, Scale

CHARACTERS = Experiment(
    name="characters",
    title="Penn Treebank by characters",
    about="Does a variable unit predict better than a dense one of the same rnn_d? The VCGRU is trained first; its "
    "rnn_d on the validation text determines the size of all others. The smaller units have the same rnn_d: they "
    "update a larger fraction of a smaller state. The larger GRUs are not matched: they are added for "
    "[timing](microseconds.md). GRUs have PyTorch's form; those of the paper's form are the VCGRU without its "
    "scheduler. The whole GRU has the VCGRU's D; with dropout it shows how much the text is too small for it.",
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
        Row("GRU, larger", "gru", times=0.53),
        Row("GRU, paper's form", "gru-reset-first", matches="VCGRU"),
        Row("GRU, paper's form, larger", "gru-reset-first", times=0.48),
        Row("GRU, paper's form, whole", "gru-reset-first"),
        Row("GRU, paper's form, whole, dropout 0.2", "gru-reset-first", {"dropout": 0.2}),
        Row("VCGRU, dropout 0.2", "vcgru", {"target": 0.4, "dropout": 0.2}),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 5.0}),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    classes=True,
    cited=(
        Cited("VCGRU-1024", 648, "1.42", beside="VCGRU"),
        Cited("GRU-458", 648, "1.47", beside="GRU"),
        Cited("LSTM-324", 648, "1.46", beside="LSTM"),
        Cited("VCRNN-1024", 760, "1.46", beside="VCRNN"),
        Cited("RNN-760", 760, "1.47", beside="RNN"),
        Cited("GRU-538", 760, "1.43"),
        Cited("LSTM-380", 760, "1.44"),
        Cited("CRNN-500", 700, "1.46", beside="CRNN"),
        Cited("RNN-1024", 1024, "1.47"),
        Cited("GRU-1024", 1450, "1.42"),
        Cited("LSTM-1024", 2048, "1.42"),
    ),
    source="Its table 3, in the middle (the caption says on the left): bits per character on the test text. It seems "
    "to count both layers of a CRNN at every step, √2 times its size; here the slow layer counts only where it runs.",
)
