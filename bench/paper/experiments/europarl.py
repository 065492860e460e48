"""Europarl: bits per character against computation, Czech and German, for RNN, "guide" and "learn"; m over a text."""

from vcdeploy.bench.paper.experiment import Curve, Experiment, Row, Scale, Traced

# (rnn_d, bits per character)
_FIGURE_4: dict[str, dict[str, Curve]] = {
    "europarl-cs": {
        "learn": (
            (161, 1.92), (225, 1.80), (235, 1.80), (289, 1.70), (314, 1.66), (371, 1.65), (388, 1.62), (393, 1.60),
            (396, 1.60), (405, 1.59), (408, 1.59), (472, 1.62),
        ),
        "guide": (
            (245, 1.85), (270, 1.74), (299, 1.67), (303, 1.69), (315, 1.65), (336, 1.62), (420, 1.60), (423, 1.59),
            (478, 1.58), (485, 1.60), (494, 1.59), (495, 1.59),
        ),
        "RNN": ((200, 1.88), (250, 1.79), (300, 1.75), (350, 1.70), (400, 1.66), (450, 1.65), (500, 1.65)),
    },
    "europarl-de": {
        "learn": (
            (161, 1.63), (227, 1.52), (247, 1.48), (293, 1.45), (298, 1.45), (384, 1.40), (443, 1.36), (481, 1.35),
            (490, 1.36), (491, 1.35),
        ),
        "guide": (
            (240, 1.55), (307, 1.41), (343, 1.38), (354, 1.37), (361, 1.37), (380, 1.37), (390, 1.36), (442, 1.35),
            (478, 1.36), (479, 1.35), (480, 1.36), (499, 1.35),
        ),
        "RNN": ((200, 1.59), (250, 1.52), (300, 1.49), (350, 1.45), (400, 1.43), (450, 1.40), (500, 1.39)),
    },
}  # fmt: skip


def _rows(corpus: str, language: str) -> tuple[Row, ...]:
    where = {"corpus": corpus}
    guide = {"setting": "guide", "guide": " ", "guide_target": 0.8, "target": 0.4}
    learn = [
        Row(f"{language}, learn {target}", "vcrnn", {**where, "target": target}, series="learn")
        for target in (0.3, 0.5)
    ]
    guided = [
        Row(f"{language}, guide 0.4{note}", "vcrnn", {**where, **guide, "weight": weight}, series="guide")
        for weight, note in ((0.6, ", weight 0.6"), (0.3, ""))
    ]
    dense = [
        Row(row.name.replace(", ", ", RNN like "), "rnn", where, matches=row.name, series="RNN")
        for row in (*learn, guided[-1])
    ]
    return (*learn, *guided, *dense, Row(f"{language}, RNN of the same D", "rnn", where, series="RNN"))


EUROPARL = Experiment(
    name="europarl",
    title="Europarl: Czech, German and English by characters",
    about="A VCRNN that learns where to compute (`learn`), one that is encouraged to compute at the ends of words "
    "(`guide`: a penalty with a weight of 0.3, or as given in the row, pulls m towards 0.8 on a space and 0.4 "
    "elsewhere), and RNNs of several sizes. The English model is for the figures below.",
    settings={},
    rows=(
        *_rows("europarl-cs", "Czech"),
        *_rows("europarl-de", "German"),
        Row("English, learn 0.5", "vcrnn", {"corpus": "europarl-en", "target": 0.5}),
    ),
    scales={
        "machine": Scale({"dim": 256, "epochs": 1.0, "batch": 16}, characters=5_000_000, held_out=200_000),
        "paper": Scale({"dim": 500, "epochs": 10.0}),
    },
    traced=(
        Traced(
            "figure3",
            "A sentence in three languages (figure 3)",
            (
                ("English, learn 0.5", "I would like to congratulate the rapporteur on his report."),
                ("Czech, learn 0.5", "Chtěl bych poblahopřát zpravodaji k jeho zprávě."),
                ("German, learn 0.5", "Ich möchte dem Berichterstatter zu seinem Bericht gratulieren."),
            ),
        ),
        Traced(
            "figure5",
            "Parts of words (figure 5)",
            (
                ("English, learn 0.5", "a longstanding understanding of unacceptable, internationally hardworking"),
                ("Czech, learn 0.5", "nejvýznamnější předsednictví, mezinárodní spolupráce a zodpovědnost"),
                ("German, learn 0.5", "umweltfreundliche Wirtschaftspolitik, Verantwortung und Zusammenarbeit"),
            ),
            words=True,
        ),
    ),
    cited_curves=_FIGURE_4,
    source="Its figure 4, which prints no numbers: these are the positions of its marks, read from the drawing in the "
    "PDF. The axis says hidden dimension, the caption computational load: taken here as rnn_d.",
)
