"""Europarl English: variable and dense units at sizes where matrix products dominate a step."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

ENGLISH = Experiment(
    name="english",
    title="Europarl English by characters",
    about="VCGRUs at D = 512, 768 and 1024 and GRUs at 256 to 768 (scale `paper`) on a text large enough that none "
    "overfits: bits/char and cost. The GRUs have the form of the paper, which is the VCGRU's own without its "
    "scheduler; the last one has the rnn_d of the smallest VCGRU.",
    settings={"corpus": "europarl-en"},
    rows=(
        Row("VCGRU, half", "vcgru", {"target": 0.4}, times=0.5),
        Row("VCGRU, three quarters", "vcgru", {"target": 0.4}, times=0.75),
        Row("VCGRU", "vcgru", {"target": 0.4}),
        Row("GRU, quarter", "gru-reset-first", times=0.25),
        Row("GRU, three eighths", "gru-reset-first", times=0.375),
        Row("GRU, half", "gru-reset-first", times=0.5),
        Row("GRU, three quarters", "gru-reset-first", times=0.75),
        Row("GRU like the half", "gru-reset-first", matches="VCGRU, half"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 1.0}, characters=5_000_000, held_out=200_000),
        "paper": Scale({"dim": 1024, "epochs": 3.0}),
    },
)
