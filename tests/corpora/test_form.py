"""Tunes in form: bars of the meter's length, parts of eight bars with repeats, an ending on the tonic."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation, rendering
from vcdeploy.music.form import BARS_PER_PART, FEWEST_PARTS, MOST_PARTS, Form
from vcdeploy.runtime.model import Model, load

KEYS = {"6/8": "Edor", "4/4": "Gmaj", "2/4": "Dmix", "3/4": "Amin", "9/8": "Bmin", "12/8": "Bbmaj", "3/8": "Ador"}


@pytest.fixture(scope="module")
def irish() -> Model:
    return load("irish")


def generated(model: Model, meter: str, key: str, seed: int, temperature: float) -> list[str]:
    symbols = model.vocab.symbols
    prime = model.vocab.lookup([notation.END, f"M:{meter}", f"K:{key}"])
    tune = [f"M:{meter}", f"K:{key}"]
    for id_ in model.generate(prime, 1000, seed=seed, temperature=temperature, top_p=1.0, allowed=Form(symbols)):
        if symbols[id_] == notation.END:
            return tune
        tune.append(symbols[id_])
    raise AssertionError("the tune has no end")


def parts(tune: Sequence[str]) -> list[list[Fraction]]:
    """The lengths of the bars of each part, in eighths."""
    found: list[list[Fraction]] = [[]]
    length = Fraction(0)
    for symbol, note in zip(tune, rendering.notes(tune), strict=True):
        if note is not None:
            length += note.eighths
        elif notation.role(symbol) == "bar" and length:
            found[-1].append(length)
            length = Fraction(0)
            if symbol != "|":
                found.append([])
    assert not length
    return found[:-1]


@pytest.mark.parametrize("meter", KEYS)
def test_bars_parts_and_the_last_note(irish: Model, meter: str) -> None:
    key, measure = KEYS[meter], notation.measure(f"M:{meter}")
    assert measure is not None
    for seed in range(4):
        tune = generated(irish, meter, key, seed, temperature=1.0 + seed / 5)  # hot: the mask does the work
        found = parts(tune)
        assert FEWEST_PARTS <= len(found) <= MOST_PARTS
        pickup = found[0][0] if found[0][0] < measure else Fraction(0)
        for part in found:
            bars = part[1:] if pickup else part
            assert len(bars) == BARS_PER_PART
            assert bars == [measure] * (BARS_PER_PART - 1) + [measure - pickup]
            assert not pickup or part[0] == pickup <= measure / 2
        last = [note for note in rendering.notes(tune) if note is not None][-1]
        tonic = rendering.notes([f"K:{key}", key[0]])[1]
        assert tonic is not None and (last.step, last.alter) == (tonic.step, tonic.alter)
        assert tune[-1] == ":|"


def test_without_the_mask_bars_are_wrong(irish: Model) -> None:
    wrong = 0
    prime = irish.vocab.lookup([notation.END, "M:6/8", "K:Edor"])
    for seed in range(6):
        tune = [irish.vocab.symbols[each] for each in irish.generate(prime, 150, seed=seed, temperature=1.4, top_p=1.0)]
        length = Fraction(0)
        for symbol, note in zip(tune, rendering.notes(tune), strict=True):
            length = length + note.eighths if note else length
            if symbol == "|":
                wrong += length != 6
                length = Fraction(0)
    assert wrong > 10


@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_every_backend_makes_the_same_tune(irish: Model, backend: str) -> None:
    pytest.importorskip(backend)
    other = load("irish", backend)
    assert generated(irish, "6/8", "Edor", 3, 0.5) == generated(other, "6/8", "Edor", 3, 0.5)


SYMBOLS = [
    "<end>",
    "M:4/4",
    "M:none",
    "K:Gmaj",
    "G2",
    "A2",
    "G",
    "^G",
    "G4",
    "B/2",
    "z",
    "(3",
    "|",
    "|:",
    ":|",
    "::",
    "||",
    "[1",
]


def allowed(*tune: str) -> set[str]:
    mask = Form(SYMBOLS)([SYMBOLS.index(each) for each in tune])
    return {symbol for symbol, may in zip(SYMBOLS, mask, strict=True) if may}


def test_what_may_follow() -> None:
    head = ("M:4/4", "K:Gmaj")
    notes = {"G2", "A2", "G", "^G", "G4", "B/2", "z"}
    assert allowed(*head) == notes | {"(3", "|:"}
    assert allowed(*head, "G2") == notes | {"(3", "|"}  # or a pickup
    assert allowed(*head, "|", *["G4", "G4"]) == {"|"}
    assert allowed(*head, *["G4", "G2", "G"]) == {"G", "^G", "z", "B/2", "(3"}
    assert allowed(*head, "(3", "G") == {"G", "^G", "z"}  # of equal length
    bar = ("G4", "G4", "|")
    assert allowed(*head, *bar * 7, "G4", "G4") == {":|", "::"}
    part = (*bar * 7, "G4", "G4", ":|")
    assert allowed(*head, *part) == notes | {"(3"}
    assert notation.END in allowed(*head, *part, *part)
    assert notation.END not in allowed(*head, *part, *part, *bar)
    assert allowed(*head, *part, *bar * 7, "G4", "G2") == {"G2", "G", "z", "B/2", "(3"}  # not A2, ^G: the tonic is last
    assert allowed(*head, *part * 4) == {notation.END}


def test_a_pickup_is_taken_from_the_last_bar_of_every_part() -> None:
    pickup = ("M:4/4", "K:Gmaj", "G2", "|", *("G4", "G4", "|") * 7)
    assert allowed(*pickup, "G4", "G2") == {":|", "::"}
    assert "|" not in allowed(*pickup, "G4", "G2", ":|")
    assert allowed(*pickup, "G4", "G2", ":|", "G2") == {"|"}
    again = (*pickup, "G4", "G2", ":|", "G2", "|", *("G4", "G4", "|") * 7, "G4", "G2", ":|")
    assert notation.END in allowed(*again)
    assert notation.END not in allowed(*again, "G2", "|")


def test_a_free_meter_and_a_new_tune_are_free() -> None:
    assert allowed("M:none", "K:Gmaj", "G2") == set(SYMBOLS)
    assert allowed("M:4/4", "K:Gmaj", "G2", notation.END) == set(SYMBOLS)


def test_primes_that_break_the_form_can_be_continued() -> None:
    for prime in ("G4 G4 G4", "[1 G4 | |", "G2 || G2 ||", "(3 |", "G4 | M:none", ":| ::"):
        assert allowed("M:4/4", "K:Gmaj", *prime.split())


def test_symbols_of_a_hostile_file() -> None:
    strange = [
        "M:4/4",
        "K:Gmaj",
        "K:",
        "G2",
        "|",
        "A/0",
        "(0",
        "(1",
        "hello",
        "\x1b[2J",
        "G99999",
        "A" + "9" * 5000,
        "M:9/0",
    ]
    mask = Form(strange)([0, 1])
    assert [symbol for symbol, may in zip(strange, mask, strict=True) if may] == ["G2"]
    Form(strange)(range(len(strange)))
    with pytest.raises(VcdeployError, match=r"can't complete a bar of 4/4 after 'K:Gmaj': use --free"):
        Form(["M:4/4", "K:Gmaj", "|"])([0, 1])


def test_the_mask_is_applied_before_temperature_and_top_p() -> None:
    from vcdeploy.runtime.sampling import Sampling, draw

    logits, m = np.array([5.0, 0.0, 4.0]), np.zeros(1)
    mask = np.array([False, True, True])
    assert draw(logits, m, 0.0, Sampling(temperature=0), (), mask).id == 2
    assert {draw(logits, m, u, Sampling(1.0, top_p=0.5), (), mask).id for u in (0.0, 0.5, 0.99)} == {2}
    assert {draw(logits, m, u, Sampling(1.0, top_p=1.0), (), mask).id for u in np.linspace(0, 1, 99)} == {1, 2}
    # The log-probability is that of the model's own distribution.
    assert draw(logits, m, 0.0, Sampling(temperature=0), (), mask).log_probability < np.log(0.5)
