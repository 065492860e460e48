"""The WebAssembly engine of the web page, run in node: the tokens of the native engine, and its errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import exported
from in_node import PAGE, in_node

import vcdeploy
from vcdeploy.spec import PRECISIONS, VARIABLE_UNITS
from vcdeploy.zoo import FOLDER

OPTIONS = {"temperature": 0.9, "topP": 0.95, "others": 3}


def generated(
    file: Path,
    prime: list[int],
    seeds: list[int],
    length: int,
    options: dict[str, Any],
    allowed: list[int] | None = None,
) -> Any:
    return in_node(
        "generate.mjs", file=str(file), prime=prime, seeds=seeds, length=length, options=options, allowed=allowed
    )


def written(folder: Path, unit: str, precision: str) -> Path:
    file = folder / f"{unit}-{precision}.onnx"
    file.write_bytes(exported(unit, precision).SerializeToString())
    return file


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_tokens_are_those_of_the_native_engine(unit: str, precision: str, tmp_path: Path) -> None:
    file = written(tmp_path, unit, precision)
    prime = [2, 3, 0, 4]
    session = vcdeploy.load(file, "native", isa="portable").session()
    session.feed(prime)
    expected = session.generate(60, temperature=0.9, top_p=0.95, seed=5)[0]
    tokens = generated(file, prime, [5], 60, OPTIONS)["tokens"]
    assert [each["id"] for each in tokens] == [each.id for each in expected]
    np.testing.assert_allclose([np.mean(each["m"]) for each in tokens], [each.m for each in expected], atol=1e-7)
    np.testing.assert_allclose(
        [each["logProbability"] for each in tokens], [each.log_probability for each in expected], atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "native", "value"),
    [
        ("temperature", "temperature", 0.3),
        ("topP", "top_p", 0.5),
        ("topK", "top_k", 2),
        ("minP", "min_p", 0.97),
        ("penalty", "repetition_penalty", 2.0),
    ],
)
def test_every_sampling_option_is_the_native_one(name: str, native: str, value: float, tmp_path: Path) -> None:
    file = written(tmp_path, "vcgru", "f32")
    session = vcdeploy.load(file, "native", isa="portable").session()
    ids = {}
    options: dict[str, Any]
    for options in ({}, {native: value}):
        session.reset()
        session.feed([2, 3])
        neutral: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
        ids[len(options)] = [each.id for each in session.generate(60, seed=5, **neutral | options)[0]]
    made = generated(file, [2, 3], [5], 60, {"temperature": 1.0, "topP": 1.0, name: value})["tokens"]
    assert [each["id"] for each in made] == ids[1] != ids[0]


def test_a_pretrained_model_continues_as_natively() -> None:
    model = vcdeploy.load("english", "native", isa="portable")
    prime = model.vocab.encode("The prime min").tolist()
    session = model.session()
    session.feed(prime)
    expected = session.generate(300, temperature=0.7, top_p=1.0, seed=3)[0]
    tokens = generated(FOLDER / "english.onnx", prime, [3], 300, {"temperature": 0.7, "topP": 1.0})["tokens"]
    assert [each["id"] for each in tokens] == [each.id for each in expected]


def test_alternatives_are_the_most_likely_symbols(tmp_path: Path) -> None:
    file = written(tmp_path, "vcgru", "f32")
    first = generated(file, [2, 3], [1], 1, {**OPTIONS, "others": 4})["tokens"][0]
    logits = vcdeploy.load(file, "native", isa="portable").run(np.array([[2], [3]]), logits="last")[0][0, 0]
    log_softmax = logits - np.log(np.exp(logits.astype(float)).sum())
    best = np.argsort(-logits)[:4]
    assert [each["id"] for each in first["others"]] == best.tolist()
    np.testing.assert_allclose([each["logProbability"] for each in first["others"]], log_softmax[best], atol=1e-6)


def test_only_allowed_symbols_are_chosen(tmp_path: Path) -> None:
    allowed = [0, 0, 1, 0, 0, 1, 0]
    tokens = generated(written(tmp_path, "vcgru", "f32"), [2], [1], 40, OPTIONS, allowed)["tokens"]
    assert {each["id"] for each in tokens} == {2, 5}


@pytest.mark.parametrize("seeds", [[0], [7], [2**32 + 5], [2**70], [12, 1]])
def test_random_numbers_are_those_of_numpy(seeds: list[int], tmp_path: Path) -> None:
    expected = np.random.default_rng(seeds[0] if len(seeds) == 1 else seeds).random(5)
    assert generated(written(tmp_path, "vcrnn", "f32"), [0], seeds, 5, OPTIONS)["places"] == expected.tolist()


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    file = written(tmp_path, "vcgru", "f32")
    assert "temperature must be 0 or more" in generated(file, [0], [0], 1, {"temperature": -1})["error"]
    model = exported("vcgru", "f32")
    del model.graph.initializer[[each.name for each in model.graph.initializer].index("layers.1.u")]
    file.write_bytes(model.SerializeToString())
    assert "it has no layers.1.u of shape [40]" in generated(file, [0], [0], 1, {})["error"]
    file.write_bytes(b"\x0a\xff\xff")
    assert "damaged or was cut short" in generated(file, [0], [0], 1, {})["error"]


def test_the_engine_is_small_enough_to_ship() -> None:
    assert (PAGE / "engine.wasm").stat().st_size < 300_000
