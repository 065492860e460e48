"""The sharpness of the mask at small D: should lambda or lambda times D be held constant?"""

from vcdeploy.bench.paper.experiment import Experiment, Row, Scale


def _sharpness(times: float) -> dict[str, float]:
    return {
        "sharpness_start": round(0.1 * times, 3), "sharpness_growth": round(0.1 * times, 3), "sharpness_end": times,
    }  # fmt: skip


SHARPNESS = Experiment(
    name="sharpness",
    title="Sharpness of the mask",
    about="The mask is soft over 7/lambda dimensions on either side of m·D. With the paper's lambda, 0.1 growing to 1, "
    "that is a seventh of a state of 1024 at first, and all of a state of 128. Here lambda is multiplied "
    "by 1, 4 and 8.",
    settings={"corpus": "ptb"},
    rows=tuple(Row(f"VCGRU, lambda × {times:g}", "vcgru", {"target": 0.4, **_sharpness(times)}) for times in (1, 4, 8)),
    scales={
        "machine": Scale({"dim": 128, "epochs": 1.0, "lr": 2e-3}, characters=1_500_000, held_out=100_000),
        "paper": Scale({"dim": 1024, "epochs": 10.0}),
    },
)
