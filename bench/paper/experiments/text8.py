"""text8: VCGRUs held to three targets, with a GRU and an RNN."""

from vcdeploy.bench.paper.experiment import Cited, Experiment, Row, Scale

TEXT8 = Experiment(
    name="text8",
    title="text8",
    about="What does it cost to compute less? Three VCGRUs of one size, held to a mean m of 0.3, 0.4 and 0.5, and a "
    "GRU and an RNN with the rnn_d of the middle one. At machine scale the text is a prefix of text8.",
    settings={},
    rows=(
        Row("VCGRU, 0.4", "vcgru", {"target": 0.4}),
        Row("GRU", "gru", matches="VCGRU, 0.4"),
        Row("RNN", "rnn", matches="VCGRU, 0.4"),
        Row("VCGRU, 0.3", "vcgru", {"target": 0.3}),
        Row("VCGRU, 0.5", "vcgru", {"target": 0.5}),
    ),
    scales={
        "machine": Scale({"corpus": "text8-prefix", "dim": 256, "epochs": 3.0}, held_out=200_000),
        "paper": Scale({"corpus": "text8", "dim": 1024, "epochs": 10.0}),
    },
    cited=(
        Cited("VCGRU-1024", 648, "1.64", beside="VCGRU, 0.4"),
        Cited("GRU-512", 725, "1.69", beside="GRU"),
        Cited("RNN-512", 512, "1.80", beside="RNN"),
        Cited("VCGRU-1024", 464, "1.69", beside="VCGRU, 0.3"),
        Cited("VCGRU-1024", 820, "1.63", beside="VCGRU, 0.5"),
        Cited("GRU-1024", 1450, "1.58"),
        Cited("RNN-512 of Zhang et al.", 512, "1.80"),
        Cited("RNN-1024 of Zhang et al.", 1024, "1.69"),
        Cited("LSTM-512 of Zhang et al.", 1024, "1.65"),
        Cited("LSTM-1024 of Zhang et al.", 2048, "1.52"),
    ),
    source="Its table 3, on the right: bits per character on the test text, for models trained on all of text8.",
)
