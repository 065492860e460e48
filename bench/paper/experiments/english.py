"""Europarl English: variable units at sizes where matrix products dominate a step."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

ENGLISH = Experiment(
    name="english",
    title="Europarl English by characters",
    about="VCGRUs at D = 512, 768 and 1024 (scale `paper`) on a text large enough that none overfits: bits/char "
    "and cost, to be timed against dense units.",
    settings={"corpus": "europarl-en", "target": 0.4},
    rows=(
        Row("VCGRU, half", "vcgru", times=0.5),
        Row("VCGRU, three quarters", "vcgru", times=0.75),
        Row("VCGRU", "vcgru"),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 1.0}, characters=5_000_000, held_out=200_000),
        "paper": Scale({"dim": 1024, "epochs": 3.0}),
    },
)
