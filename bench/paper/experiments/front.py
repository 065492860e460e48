"""text8 again: a larger fraction of a smaller state, and dense units of more sizes, to be timed with those of text8."""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale

FRONT = Experiment(
    name="front",
    title="text8: a larger fraction of a smaller state",
    about="VCGRUs that update a larger fraction of a smaller state than those of `text8`, with the same text and "
    "training: the smaller one has about the rnn_d of the GRU there, the larger one twice that, with a GRU of the same "
    "rnn_d. Another GRU, of a size in between, is added for [timing](microseconds.md).",
    settings={},
    rows=(
        Row("VCGRU, smaller", "vcgru", {"budget": 0.63}, times=0.7),
        Row("VCGRU, larger", "vcgru", {"budget": 0.63}, times=1.4),
        Row("GRU like the larger", "gru", matches="VCGRU, larger"),
        Row("GRU, between", "gru", times=0.62),
    ),
    scales={
        "machine": Scale({"corpus": "text8-prefix", "dim": 256, "epochs": 3.0}, held_out=200_000),
        "paper": Scale({"corpus": "text8", "dim": 512, "epochs": 10.0}),
    },
)
