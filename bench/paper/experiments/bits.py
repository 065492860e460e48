"""Penn Treebank by bits, with zero bits after every character: does the scheduler find where the characters are?"""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale


def _rows(buffer: int) -> tuple[Row, ...]:
    first, zeros = f"VCRNN, {buffer} buffer bits", {"buffer": buffer}
    return (
        Row(first, "vcrnn", {**zeros, "target": 0.3}),
        Row(f"RNN, {buffer} buffer bits", "rnn", zeros, matches=first),
        Row(f"CRNN, {buffer} buffer bits", "crnn", zeros, matches=first),
        Row(f"VCRNN, {buffer} buffer bits, smaller", "vcrnn", {**zeros, "budget": 0.63}, matches=first),
    )


BITS = Experiment(
    name="bits",
    title="Penn Treebank by bits",
    about="Every character is eight bits and a buffer of 8 or 24 zeros. The CRNN is told where characters end; the "
    "VCRNN has to find out. The others have the rnn_d of the first VCRNN with the same buffer; the smaller one "
    "spends a larger share of its state.",
    settings={"corpus": "ptb", "kind": "bits", "bptt": 96},
    rows=tuple(row for buffer in (8, 24) for row in _rows(buffer)),
    scales={
        "machine": Scale({"dim": 128, "epochs": 1.0, "batch": 16, "warmup": 100}, characters=500_000, held_out=50_000),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
    score="bits_per_character",
    classes=True,
)
