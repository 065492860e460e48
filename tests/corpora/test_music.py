"""ABC to symbols and back: each parsing rule on its own, then real tunes, checked against music21."""

import random
from fractions import Fraction

import pytest

from vcdeploy.corpora import Corpus
from vcdeploy.music import notation
from vcdeploy.music.notation import UnreadableTune, abc_of, key_symbol, meter_symbol, parse, symbols_of, to_abc


def body(abc: str, head: str = "M:4/4\nL:1/8\nK:C") -> str:
    """The symbols of a body, separated by spaces, without the header's."""
    symbols = parse(f"X:1\n{head}\n{abc}")
    assert notation.role(symbols[0]) == "meter"
    assert notation.role(symbols[1]) == "key"
    return " ".join(symbols[2:])


@pytest.mark.parametrize(
    ("abc", "expected"),
    [
        ("A B2 c/ d/2 e// f3/2 g3/ a/4", "A B2 c/2 d/2 e/4 f3/2 g3/2 a/4"),
        ("^C _D =E ^^F __G c, C' C,, c''", "^C _D =E ^^F __G C c C,, c''"),
        ("z z2 x2", "z z2 z2"),
        ("A>B c<d e>>f g<<<a", "A3/2 B/2 c/2 d3/2 e7/4 f/4 g/8 a15/8"),
        ("A > B", "A3/2 B/2"),
        ("A>{c}B", "A3/2 B/2"),
        ("A2>B2", "A3 B"),
        ("[CEG]2 [G2e2] [c'C]/ [^f_B]", "G2 e2 c'/2 ^f"),
        ("A-A B2-|B c-d", "A2 B2 | B c d"),
        ("A-A-A2 ^f-f f-^f", "A4 ^f2 f ^f"),
        ("A-A>B", "A5/2 B/2"),
        ("(3ABc-c2 (3A-AA", "(3 A B c c2 (3 A A A"),
        ("(3ABc (3:2:4ABcd (5ABcde (2AB", "(3 A B c (3:2:4 A B c d (5 A B c d e (2 A B"),
        ("(3::3ABc (3:2ABc (4:2ABcd", "(3 A B c (3 A B c (4:2:4 A B c d"),
        ("{gag}A ~B .c uDvE !trill!F +fermata+G TA", "A B c D E F G A"),
        ('"Gm"G "^above"A (AB) (A(Bc))', "G A A B A B c"),
        ("A y B \\\nc` d", "A B c d"),
        ("A|B||c|]d|:e:|f::g", "A | B || c |] d |: e :| f :: g"),
        ("A:||:B:|:C||:D[|E|::F::|", "A :: B :: C |: D || E |: F :|"),
        ("A:|\n|:B| |C||\n|D|[|]E|", "A :: B | C || D | E |"),
        ("|1 A:|2 B|[1 C :|[2D|[1,3E", "| [1 A :| [2 B | [1 C :| [2 D | [1,3 E"),
        ("A[M:3/4]B[K:Am]c", "A M:3/4 B K:Amin c"),
        ("A\nM:C|\nB\nK:Dmix\nc\nM:C|\nd", "A M:2/2 B K:Dmix c d"),
        ("A\nL:1/16\nB2[L:1/4]c", "A B c2"),
        ("Z|Z2|A", "z8 | z8 | z8 | A"),
        ("A|B&c2|d", "A | B | d"),
        ("A % comment B\nB", "A B"),
        ("A\nw: some words A B\nW: more\nP:B\nN:note\nB", "A B"),
        ("d:|\ne", "d :| e"),
    ],
)
def test_what_is_read(abc: str, expected: str) -> None:
    assert body(abc) == expected
    symbols = ["M:4/4", "K:Cmaj", *expected.split()]
    assert parse(to_abc(symbols)) == symbols


def test_only_the_first_voice_is_read() -> None:
    assert body("V:1\nA|\nV:2\nC|K:D\nV:1\nB|") == "A | B |"
    assert body("[V:1]A|\n[V:2]C|[M:3/4]\n[V:1]B|") == "A | B |"
    assert body("A|\nV:2\nC|") == "A |"


@pytest.mark.parametrize(
    ("head", "abc", "expected"),
    [
        ("M:2/4\nK:C", "A2", "A"),  # below 3/4 the default unit is a sixteenth
        ("M:3/4\nK:C", "A2", "A2"),
        ("M:4/4\nL:1/16\nK:C", "A2", "A"),
        ("M:4/4\nL:1/4\nK:C", "A2 B/", "A4 B"),
        ("L: 1/16\nM: 6/8 % jig\nK: G % key", "A2", "A"),
    ],
)
def test_unit_lengths_become_eighths(head: str, abc: str, expected: str) -> None:
    assert body(abc, head) == expected


@pytest.mark.parametrize(
    ("value", "symbol"),
    [
        ("G", "K:Gmaj"), (" G ", "K:Gmaj"), ("GM", "K:Gmaj"), ("G Major", "K:Gmaj"), ("Gmajor", "K:Gmaj"),
        ("Gionian", "K:Gmaj"), ("Em", "K:Emin"), ("E Minor", "K:Emin"), ("EMIN", "K:Emin"),
        ("Eaeolian", "K:Emin"), ("F#m", "K:F#min"), ("Bb", "K:Bbmaj"), ("A Mixolydian", "K:Amix"),
        ("Ddor", "K:Ddor"), ("Glydian", "K:Glyd"), ("Hp", "K:Amix"), ("none", "K:none"),
        ("D clef=treble", "K:Dmaj"), ("Am treble", "K:Amin"),
    ],
)  # fmt: skip
def test_keys_have_one_spelling(value: str, symbol: str) -> None:
    assert key_symbol(value) == symbol


@pytest.mark.parametrize(
    ("value", "symbol"),
    [("C", "M:4/4"), ("C|", "M:2/2"), (" 6/8", "M:6/8"), ("(2+3)/8", "M:(2+3)/8"), ("none", "M:none")],
)
def test_meters_have_one_spelling(value: str, symbol: str) -> None:
    assert meter_symbol(value) == symbol


@pytest.mark.parametrize(
    "abc",
    ["A=20", "A>|B", ">A", "A3/7", "A/0", "A0", "[]2", "A : B", "(1A", "{g A", "K:H", "K:Dmix=c", "M:4",
     "M:4/0", "L:x", "L:1/0", "M:none\nZ2", "A9999", "Z999", "M:٣/4", "|", ""],
)  # fmt: skip
def test_what_cannot_be_read_is_said(abc: str) -> None:
    with pytest.raises(UnreadableTune) as error:
        body(abc)
    assert str(error.value)


def test_noise_is_refused_or_survives_a_round_trip() -> None:
    """Parsing raises nothing but UnreadableTune, and parsed symbols survive the round trip through ABC."""
    noise = random.Random(0)
    pieces = [
        *"ABCabcg|:[](){}<>-=^_/,'23 \n.zZxy&%!+\\\"~",
        "[1",
        "(3",
        "|:",
        ":|",
        "[K:D]",
        "[M:3/4]",
        "\nL:1/4\n",
    ]
    read = 0
    for _ in range(3000):
        text = "M:4/4\nL:1/8\nK:C\nA" + "".join(noise.choices(pieces, k=noise.randint(1, 14)))
        try:
            symbols = parse(text)
        except UnreadableTune:
            continue
        read += 1
        assert parse(to_abc(symbols)) == symbols, text
    assert read > 300


def test_a_page_of_abc() -> None:
    symbols = "M:6/8 K:Dmaj |: A | d F F A F A | (3 B c d e2 f | g3 z3 | d6 :| [1 A2 B :| [2 M:2/4 c2 d2 ||"
    page = to_abc(symbols.split(), title="A jig", number=7)
    assert page == (
        "X:7\nT:A jig\nM:6/8\nL:1/8\nK:Dmaj\n|: A | dFF AFA | (3Bcde2f | g3 z3 |\nd6 :|[1 A2B :|[2 [M:2/4] c2 d2 ||\n"
    )
    assert parse(page) == symbols.split()


def test_tunes_without_meter_or_key_still_make_a_page() -> None:
    assert to_abc(["A", "|", notation.END]) == "X:1\nT:Tune 1\nL:1/8\nK:Cmaj\nA |\n"


def test_ends_of_tunes_survive() -> None:
    symbols = ["M:4/4", "K:Cmaj", "A", "|", notation.END, "M:6/8", "K:Dmaj", "B2", "c"]
    assert symbols_of(abc_of(symbols)) == symbols
    assert symbols_of(abc_of([*symbols, notation.END])) == [*symbols, notation.END]
    assert abc_of(["A", "B2"]) == "AB2"


Tunes = dict[str, list[tuple[str, ...]]]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_real_tunes_survive_a_round_trip(irish: Corpus, irish_tunes: Tunes, split: str) -> None:
    assert len(irish_tunes[split]) > 150
    for tune in irish_tunes[split]:
        assert {notation.role(symbol) for symbol in tune[:2]} >= {"key"}
        assert parse(to_abc(tune)) == list(tune)
    ids = irish.splits[split]
    assert (irish.vocab.encode(irish.vocab.decode(ids)) == ids).all()


def sounding(tune: tuple[str, ...]) -> list[tuple[str, Fraction]]:
    """Letter with octave ("C4") or "rest", and length in quarters, of each note, with tuplets applied."""
    found, left, scale, meter = [], 0, Fraction(1), ""
    for symbol in tune:
        match notation.role(symbol):
            case "meter":
                meter = symbol
            case "tuplet":
                notes = int(symbol[1])
                time = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}.get(notes, 3 if meter in ("M:6/8", "M:9/8") else 2)
                assert len(symbol) == 2
                left, scale = notes, Fraction(time, notes)
            case "note" | "rest":
                pitch = notation.pitch(symbol).lstrip("^_=")
                octave = 4 + pitch[0].islower() + pitch.count("'") - pitch.count(",")
                name = "rest" if pitch == "z" else f"{pitch[0].upper()}{octave}"
                found.append((name, notation.length(symbol) / 2 * (scale if left else 1)))
                left = max(0, left - 1)
    return found


def test_music21_hears_the_same_notes(irish_tunes: Tunes) -> None:
    import music21

    tunes = irish_tunes["valid"][:25]
    assert any("(3" in tune for tune in tunes)
    for tune in tunes:
        score = music21.converter.parse(to_abc(tune), format="abc")
        heard = [
            ("rest" if note.isRest else f"{note.pitch.step}{note.pitch.octave}", Fraction(note.quarterLength))
            for note in score.flatten().notesAndRests
            if not isinstance(note, music21.harmony.ChordSymbol)
        ]
        assert heard == sounding(tune)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("M:6/8 K:Dmaj | (3 A B c d | | (3 e | f", "M:6/8 K:Dmaj (3 A B c d | e | f"),
        ("f (2 (3:2:2 g a (3 || b (3 c", "f (3:2:2 g a || b c"),
        ("M:6/8 |: (3 A B c | e :| [1 f | g ::", "M:6/8 |: (3 A B c | e :| [1 f | g ::"),
    ],
)
def test_repaired_tunes_drop_marks_without_notes(written: str, kept: str) -> None:
    assert notation.repaired(written.split()) == kept.split()
