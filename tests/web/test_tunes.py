"""Tunes of the web page without a server, composed in node: symbols, form and ABC are those of Python."""

from typing import Any

from in_node import in_node

import vcdeploy
from vcdeploy.music import notation
from vcdeploy.music.form import Form
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.runtime.tunes import begin
from vcdeploy.zoo import FOLDER

START = ["M:6/8", "K:Dmaj", "d2", "f", "a2", "f"]


def request(seed: int, **options: Any) -> dict[str, Any]:
    return {"meter": None, "key": None, "start": [], "temperature": 0.8, "topP": 0.9, "seed": seed, **options}


def test_tunes_are_those_of_python() -> None:
    model = vcdeploy.load("irish", "native", isa="portable")
    requests = [
        *(request(seed) for seed in range(8)),
        request(3, meter="9/8", key="Edor"),
        request(2**40, meter="3/4", temperature=1.2, topP=1.0),
        request(5, start=START),
        request(6, key="Gmaj", temperature=0),
    ]
    composed = in_node("compose.mjs", file=str(FOLDER / "irish.onnx"), requests=requests)
    end = model.vocab.symbols.index(notation.END)
    for asked, made in zip(requests, composed, strict=True):
        sampling = Sampling(asked["temperature"], top_p=asked["topP"], seed=asked["seed"], stop=((end,),))
        start = model.vocab.encode(" ".join(asked["start"])).tolist()
        opening, begins = begin(model, start, asked["meter"], asked["key"], sampling)
        session, form = model.session(), Form(model.vocab.symbols)
        session.feed(opening)
        ids = opening.tolist()
        while len(ids) == len(opening) or ids[-1] != end:
            [[token]] = session.generate(1, sampling, allowed=form(ids))
            ids.append(token.id)
        expected = [model.vocab.symbols[id_] for id_ in ids[begins:]]
        assert made["symbols"] == expected
        assert made["complete"] and made["abc"] == notation.to_abc(notation.repaired(expected), made["title"])
