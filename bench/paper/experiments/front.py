"""Bits per character against microseconds per character: what a model says, and how long it takes to say it."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

FRONT = Experiment(
    name="front",
    title="Bits against microseconds",
    about="VCGRUs and GRUs of several sizes on one text, and then the time each takes for a character, all in one "
    "interleaved run (`vcdeploy bench paper time front`).",
    settings={},
    rows=(
        Row("VCGRU, twice as large", "vcgru", {"target": 0.3}, times=2),
        Row("GRU like it", "gru", matches="VCGRU, twice as large"),
        Row("GRU", "gru"),
    ),
    scales={
        "machine": Scale({"corpus": "text8-prefix", "dim": 256, "epochs": 3.0}, held_out=200_000),
        "paper": Scale({"corpus": "text8", "dim": 512, "epochs": 10.0}),
    },
    in_paper=False,
)
