"""Penn Treebank by bits, with zero bits after every character: does the scheduler find where the characters are?"""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

BITS = Experiment(
    name="bits",
    title="Penn Treebank by bits",
    about="Every character is eight bits and a buffer of 8 or 24 zeros. The CRNN is told where characters end; the "
    "VCRNN has to find out. RNN and CRNN have the rnn_d of the VCRNN with the same buffer.",
    settings={"corpus": "ptb", "kind": "bits", "bptt": 96},
    rows=(
        Row("VCRNN, 8 buffer bits", "vcrnn", {"buffer": 8, "target": 0.3}),
        Row("RNN, 8 buffer bits", "rnn", {"buffer": 8}, matches="VCRNN, 8 buffer bits"),
        Row("CRNN, 8 buffer bits", "crnn", {"buffer": 8}, matches="VCRNN, 8 buffer bits"),
        Row("VCRNN, 24 buffer bits", "vcrnn", {"buffer": 24, "target": 0.3}),
        Row("RNN, 24 buffer bits", "rnn", {"buffer": 24}, matches="VCRNN, 24 buffer bits"),
        Row("CRNN, 24 buffer bits", "crnn", {"buffer": 24}, matches="VCRNN, 24 buffer bits"),
    ),
    scales={
        "machine": Scale({"dim": 128, "epochs": 1.0, "batch": 16, "warmup": 100}, characters=500_000, held_out=50_000),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    score="bits_per_character",
    classes=True,
)
