"""Penn Treebank by bits, with zero bits after every character: does the scheduler find where the characters are?"""

from vcdeploy.bench.paper.experiment import Cited, Experiment, Row, Scale, Traced


def _rows(buffer: int, target: float) -> tuple[Row, ...]:
    # Twelve characters per segment, since gradients have to reach across the zeros; the same number of bits per step.
    period = 8 + buffer
    zeros = {"buffer": buffer, "bptt": 12 * period, "batch": 128 // period}
    where = f"{buffer} buffer bits" if buffer else "no buffer"
    first = f"VCRNN, {where}"
    return (
        Row(first, "vcrnn", {**zeros, "target": target}),
        Row(f"RNN, {where}", "rnn", zeros, matches=first),
        Row(f"CRNN, {where}", "crnn", zeros, matches=first),
        Row(f"VCRNN, {where}, smaller", "vcrnn", {**zeros, "budget": 0.63}, matches=first),
    )


BITS = Experiment(
    name="bits",
    title="Penn Treebank by bits",
    about="Every character is eight bits, alone or followed by a buffer of 8 or 24 zeros. The CRNN is given the ends "
    "of characters; the VCRNN has to find them. The others are sized to match the rnn_d of the first VCRNN with the "
    "same buffer; the smaller VCRNN has a budget for a larger fraction of its state, and may stay below it. Every "
    "segment is twelve characters long.",
    settings={"corpus": "ptb", "kind": "bits"},
    rows=(*_rows(0, 0.4), *_rows(8, 0.3), *_rows(24, 0.3)),
    scales={
        "machine": Scale({"dim": 128, "epochs": 1.0, "warmup": 100}, characters=500_000, held_out=50_000),
        "paper": Scale({"dim": 1000, "epochs": 10.0}),
    },
    score="bits_per_character",
    classes=True,
    traced=(
        Traced(
            "figure2",
            'The bits of "the", and the higher dimensions (figure 2)',
            tuple((f"VCRNN, {where}", "the") for where in ("no buffer", "8 buffer bits", "24 buffer bits")),
            above=0.25,
        ),
    ),
    cited=(
        Cited("VCRNN-1000", 460, "1.720", beside="VCRNN, no buffer"),
        Cited("VCRNN-1000", 340, "1.848"),
        Cited("RNN-500", 500, "1.816", beside="RNN, no buffer"),
        Cited("RNN-100", 100, "2.296"),
        Cited("RNN-1000", 1000, "1.784"),
        Cited("CRNN-100", 140, "1.776", beside="CRNN, no buffer"),
    ),
    source="Its table 3, on the left (the caption says in the middle), has bits per bit of the test text, from 0.215 "
    "to 0.287; the figures here are eight times as large. For input with a buffer it has figure 2, but no table. It "
    "seems to count both layers of a CRNN at every step, √2 times its size; here the slow layer counts only where it "
    "runs.",
)
