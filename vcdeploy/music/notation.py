"""Converts tunes between ABC notation and symbols.

A symbol is a short piece of ABC with the unit length L:1/8: a note as written under its key with its
length (`G2`, `^c/2`), a rest (`z2`), a bar (`|`, `|:`, `:|`, `::`, `||`, `|]`), an ending (`[1`), a
tuplet (`(3`, which applies to the notes after it), a meter (`M:6/8`), a key (`K:Gmaj`), or END. A tune
opens with its meter and key.

Only the melody and its bars are kept. Broken rhythms become plain lengths, rests of whole measures
are written out, a tie within a bar joins its notes, a chord is reduced to its highest note (nearly
always the melody), and only the first of several voices is read. Ties across bars, grace notes,
decorations, slurs, chord names, lyrics and other text are dropped.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from vcdeploy.errors import BadValue

END = "<end>"
TICKS = 256  # per eighth: while parsing, lengths are whole numbers of ticks
BARS = ("|", "||", "|]", "|:", ":|", "::")
ROLES = ("bar", "rest", "note", "tuplet", "ending", "key", "meter", "tune end")


class UnreadableTune(ValueError):
    """ABC that cannot be turned into symbols; the message says why."""


_LENGTH = r"\d{0,3}(?:/\d{0,3})*"
_ACCIDENTAL = r"(?:\^\^?|__?|=)?"
_NOTE = re.compile(rf"({_ACCIDENTAL})([A-Ga-g])([,']*)({_LENGTH})", re.ASCII)
_TOKEN = re.compile(
    rf"""
    (?P<note>{_ACCIDENTAL}[A-Ga-g][,']*{_LENGTH})
  | (?P<rest>[zx]{_LENGTH})
  | (?P<measures>[ZX]\d{{0,2}})
  | (?P<field>\[[A-Za-z]:[^\]\n]*\])
  | (?P<ending>\[\s*\d[\d,.-]*)
  | (?P<bar>\.?(?:\[?\|[|\]]*:*|:+\|*\]?\|*:*))(?P<after>\d[\d,.-]*)?  # an ending may directly follow its bar
  | (?P<chord>\[[^\]|\n]*\]{_LENGTH})
  | (?P<tuplet>\(\d(?::\d?){{0,2}})
  | (?P<broken>>+|<+)
  | (?P<tie>-)
  | (?P<overlay>&)
  | (?P<skip>\s+|"[^"\n]*"|\{{[^}}]*\}}|![a-zA-Z0-9<>()+.]+!|\+[a-z]+\+|[()]|[.~H-Wh-w]|y\d*|[\\`$*!])
    """,
    re.VERBOSE | re.ASCII,
)
_DECORATIONS = "HLMOPSTuv"  # the letters that ABC itself defines; a tune's header may define others
# A letter and a colon start a field line, unless the colon belongs to a bar: "d:|".
_FIELD_LINE = re.compile(r"([A-Za-z+]):(?![|:])(.*)")
_KEY = re.compile(r"([A-G])([#b]?)\s*([A-Za-z]*)$")
_CLEF = re.compile(r"\s*\b(?:clef=)?(?:treble|bass|alto|tenor)\S*|\s*\b(?:name|nm|middle|m)=\S+")
_MODES = ("maj", "min", "dor", "phr", "lyd", "mix", "loc", "ion", "aeo")
_METER = re.compile(r"(?:\d{1,2}|\(\d{1,2}(?:\+\d{1,2})*\))/[1-9]\d?$", re.ASCII)
# A tuplet of p notes is played in the time of this many; for 5, 7 and 9 it depends on the meter.
_IN_TIME_OF = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}


def role(symbol: str) -> str:
    """The role of a symbol: one of ROLES."""
    if symbol in BARS:
        return "bar"
    if symbol == END:
        return "tune end"
    named = {"z": "rest", "(": "tuplet", "[": "ending", "K": "key", "M": "meter"}
    return named.get(symbol[0], "note")


def pitch(symbol: str) -> str:
    """The written pitch of a note: `^c` for `^c/2`."""
    return symbol.rstrip("0123456789/")


def length(symbol: str) -> Fraction:
    """The written length of a note or rest, in eighths: 1/2 for `^c/2`."""
    return _read_length(symbol[len(pitch(symbol)) :])


def is_sounding(symbol: str) -> bool:
    """Whether a symbol is a note or rest as `parse` writes them: at most 64 eighths, in sixteenths of an eighth."""
    match = _TOKEN.fullmatch(symbol)
    if not match or match.lastgroup not in ("note", "rest"):
        return False
    try:
        eighths = length(symbol)
    except UnreadableTune:
        return False
    return 0 < eighths <= 64 and 16 % eighths.denominator == 0


def is_tuplet(symbol: str) -> bool:
    """Whether a symbol is a tuplet of at least two notes."""
    return bool(re.fullmatch(r"\([2-9](?::[1-9]:[1-9])?", symbol))


def key_symbol(value: str) -> str:
    """The normalized symbol of a key field's value: "E Minor", "Em" and "Emin" become `K:Emin`."""
    text = _CLEF.sub("", value).strip()
    if text.lower() == "none":
        return "K:none"
    if text.upper() == "HP":  # Highland pipes: F and C sharp
        return "K:Amix"
    match = _KEY.match(text)
    if not match:
        raise UnreadableTune(f"the key {value.strip()!r}")
    tonic, sign, mode = match.groups()
    short = {"": "maj", "M": "maj", "m": "min"}.get(mode, mode[:3].lower())
    if short not in _MODES:
        raise UnreadableTune(f"the key {value.strip()!r}")
    return f"K:{tonic}{sign}{ {'ion': 'maj', 'aeo': 'min'}.get(short, short) }"


def meter_symbol(value: str) -> str:
    """The normalized symbol of a meter field's value: "C|" becomes `M:2/2`."""
    text = value.replace(" ", "")
    text = {"C": "4/4", "C|": "2/2", "": "none"}.get(text, text)
    if text != "none" and not _METER.match(text):
        raise UnreadableTune(f"the meter {value.strip()!r}")
    return f"M:{text}"


def measure(meter: str) -> Fraction | None:
    """Eighths per measure of a meter symbol; None for a free meter."""
    if not _METER.match(meter[2:]):
        return None
    beats, unit = meter[2:].replace("(", "").replace(")", "").split("/")
    return Fraction(8 * sum(map(int, beats.split("+"))), int(unit))


@lru_cache(maxsize=4096)
def _read_length(text: str) -> Fraction:
    whole, *halvings = text.split("/")
    value = Fraction(int(whole or 1))
    for part in halvings:
        if part and not int(part):
            raise UnreadableTune(f"the length {text!r}")
        value /= int(part or 2)
    return value


def _whole(ticks: Fraction) -> int:
    if ticks.denominator != 1:
        raise UnreadableTune(f"a note of {ticks / TICKS} eighths")
    return ticks.numerator


@lru_cache(maxsize=4096)
def _spell_length(ticks: int) -> str:
    value = Fraction(ticks, TICKS)
    if value <= 0 or value.denominator > 16:
        raise UnreadableTune(f"a note of {value} eighths")
    above = "" if value.numerator == 1 else str(value.numerator)
    return above if value.denominator == 1 else f"{above}/{value.denominator}"


@dataclass(slots=True)
class _Note:
    """A note or rest being parsed."""

    accidental: str
    letter: str  # with normalized octave marks; "z" for a rest
    ticks: int
    last: int  # ticks of the latest tied note
    in_tuplet: bool

    def __str__(self) -> str:
        return self.accidental + self.letter + _spell_length(self.ticks)


class _Reader:
    """Reads the body of one tune, line by line, into `items`."""

    def __init__(self, meter: str = "", unit: int = TICKS, strict: bool = False) -> None:
        self.meter, self.key, self.unit = meter, "", unit  # unit: L in ticks
        self.strict = strict
        self.items: list[_Note | str] = []
        self.voice: str | None = None  # the first voice, the only one read
        self.hears = True  # whether the current voice is that one
        self.overlaid = False  # after &, until the next bar
        self.broken = ""  # the sign of a broken rhythm whose second note is pending
        self.tied = False
        self.tuplet_left = 0

    def symbols(self) -> list[str]:
        return [str(item) for item in self.items]

    def read_field(self, letter: str, value: str) -> None:
        if letter == "V":
            voice = value.split()[0] if value.split() else ""
            if self.voice is None:
                self.voice = "" if any(isinstance(item, _Note) for item in self.items) else voice
            self.hears = voice == self.voice
        elif not self.hears:
            return
        elif letter == "L":
            self.unit = _unit(value)
        elif letter == "K" and (symbol := key_symbol(value)) != self.key:
            self.key = symbol
            self.items.append(symbol)
        elif letter == "M" and (symbol := meter_symbol(value)) != self.meter:
            self.meter = symbol
            self.items.append(symbol)

    def read_line(self, line: str) -> None:
        at = 0
        while at < len(line):
            match = _TOKEN.match(line, at)
            if not match or match.end() == at:
                raise UnreadableTune(f"{line[at]!r} in {line.strip()[:60]!r}")
            if self.strict and match.lastgroup == "skip" and match[0].isalpha() and match[0] not in _DECORATIONS:
                raise UnreadableTune(f"{line[at]!r} in {line.strip()[:60]!r}")
            at = match.end()
            kind = match.lastgroup if match.lastgroup != "after" else "bar"
            if kind == "field":
                self.read_field(match[0][1], match[0][3:-1])
            elif kind != "skip" and self.hears and (kind == "bar" or not self.overlaid):
                self._read_token(str(kind), match)

    def _read_token(self, kind: str, match: re.Match[str]) -> None:
        text = match[0]
        if kind == "note":
            self._add_note(*_read_note(text, self.unit))
        elif kind == "rest":
            self._add_note("", "z", _whole(_read_length(text[1:]) * self.unit))
        elif kind == "chord":
            notes = _NOTE.findall(re.sub(r'"[^"]*"|![^!]*!', "", text[: text.index("]")]))
            if not notes:
                raise UnreadableTune(f"the chord {text!r}")
            accidental, letter, octave, inner = max(notes, key=lambda n: _height(n[1], n[2]))
            ticks = _read_length(inner) * _read_length(text[text.index("]") + 1 :]) * self.unit
            self._add_note(accidental, _letter(letter, octave), _whole(ticks))
            self.tied = self.tied or "-" in text
        elif kind == "bar":
            self._add_bar(match["bar"].lstrip("."))
            if match["after"]:
                self._add_ending(match["after"])
        elif kind == "ending":
            self._add_ending(text[1:])
        elif kind == "tuplet":
            self._add_tuplet(text)
        elif kind == "broken":
            self._break(text)
        elif kind == "tie":
            self.tied = True
        elif kind == "measures":
            self._add_measures(int(text[1:] or 1))
        elif kind == "overlay":
            self.overlaid = True

    def _add_note(self, accidental: str, letter: str, ticks: int) -> None:
        if self.broken:
            ticks = _broken(ticks, self.broken, first=False)
        before = self.items[-1] if self.items else None
        in_tuplet = self.tuplet_left > 0
        if (
            self.tied
            and isinstance(before, _Note)
            and before.letter == letter != "z"
            and accidental in ("", before.accidental)
            and not (before.in_tuplet or in_tuplet)
        ):
            before.ticks += ticks
            before.last = ticks
        else:
            self.items.append(_Note(accidental, letter, ticks, ticks, in_tuplet))
        self.broken, self.tied = "", False
        self.tuplet_left = max(0, self.tuplet_left - 1)

    def _add_bar(self, text: str) -> None:
        if text == ":":
            raise UnreadableTune("a single ':'")
        if self.broken:
            raise UnreadableTune("a broken rhythm with no note after it")
        self.overlaid = self.tied = False
        if text == "[|]":  # an invisible bar
            return
        # Adjacent bars are merged: ":|" and "|:" on the next line become "::".
        before = [str(self.items.pop())] if self.items and self.items[-1] in BARS else []
        self.items.append(_bar(*before, text))

    def _add_ending(self, text: str) -> None:
        self.items.append("[" + text.rstrip(",.-"))

    def _add_tuplet(self, text: str) -> None:
        notes, time, span = (*(int(n or 0) for n in text[1:].split(":")), 0, 0)[:3]
        if notes < 2:
            raise UnreadableTune(f"the tuplet {text!r}")
        plain = span in (0, notes) and time in (0, _IN_TIME_OF.get(notes, 0))
        time = time or _in_time_of(notes, self.meter)
        self.tuplet_left = span or notes
        self.items.append(f"({notes}" if plain else f"({notes}:{time}:{self.tuplet_left}")

    def _break(self, text: str) -> None:
        before = self.items[-1] if self.items else None
        if not isinstance(before, _Note):
            raise UnreadableTune(f"{text!r} with no note before it")
        ticks = _broken(before.last, text, first=True)
        before.ticks += ticks - before.last
        before.last = ticks
        self.broken = text

    def _add_measures(self, count: int) -> None:
        length = measure(self.meter)
        if length is None:
            raise UnreadableTune("a rest of whole measures without a meter")
        for i in range(count):
            if i:
                self._add_bar("|")
            self._add_note("", "z", _whole(length * TICKS))


def _bar(*texts: str) -> str:
    """The one of BARS that combines all of `texts`."""
    closes, opens = any(t[0] == ":" for t in texts), any(t[-1] == ":" for t in texts)
    if closes or opens:
        return "::" if closes and opens else "|:" if opens else ":|"
    if any("]" in t for t in texts):
        return "|]"
    return "||" if any(len(t) > 1 for t in texts) else "|"


@lru_cache(maxsize=4096)
def _read_note(text: str, unit: int) -> tuple[str, str, int]:
    """Accidental, letter and ticks of a note token."""
    [(accidental, letter, octave, written)] = _NOTE.findall(text)
    return accidental, _letter(letter, octave), _whole(_read_length(written) * unit)


@lru_cache(maxsize=4096)
def _broken(ticks: int, sign: str, *, first: bool) -> int:
    """Ticks of the first or second note of a broken rhythm: `>` lengthens the first by half, and so on."""
    short = Fraction(ticks, 2 ** len(sign))
    return _whole(2 * ticks - short if (sign[0] == ">") == first else short)


def _height(letter: str, octave: str) -> int:
    """Steps above C: higher on the staff is larger."""
    octaves = letter.islower() + octave.count("'") - octave.count(",")
    return "CDEFGAB".index(letter.upper()) + 7 * octaves


def _letter(letter: str, octave: str) -> str:
    """A letter with its octave marks, normalized: `c,` becomes `C`."""
    octaves, step = divmod(_height(letter, octave), 7)
    name = "CDEFGAB"[step]
    return name.lower() + "'" * (octaves - 1) if octaves > 0 else name + "," * -octaves


def _in_time_of(notes: int, meter: str) -> int:
    measure = meter[2:].split("/")[0]
    compound = measure.isdigit() and int(measure) % 3 == 0 and int(measure) > 3
    return _IN_TIME_OF.get(notes, 3 if compound else 2)


def tuplet(symbol: str, meter: str) -> tuple[Fraction, int]:
    """The length factor of a tuplet's notes and their number: `(3` is three notes in the time of two."""
    notes, time, span = (*(int(n) for n in symbol[1:].split(":")), 0, 0)[:3]
    return Fraction(time or _in_time_of(notes, meter), notes), span or notes


def _unit(value: str) -> int:
    """The value of an L: field in ticks."""
    match = re.match(r"\s*(\d{1,3})(?:/([1-9]\d{0,2}))?\s*$", value, re.ASCII)
    if not match:
        raise UnreadableTune(f"the unit length {value.strip()!r}")
    return _whole(Fraction(8 * TICKS * int(match[1]), int(match[2] or 1)))


def parse(abc: str, strict: bool = False) -> list[str]:
    """The symbols of one tune, or of a fragment without a header; END is not included.

    strict: reject letters that are neither notes nor decorations of the ABC standard, instead of dropping them.
    """
    fields: dict[str, str] = {}  # of the header, up to K:
    lines = [re.sub(r"(?<!\\)%.*", "", line).strip() for line in abc.splitlines()]
    matches = [_FIELD_LINE.match(line) for line in lines]
    head = next((i for i, m in enumerate(matches) if m and m[1] == "K"), -1)
    for match in matches[: head + 1]:
        if match:
            fields.setdefault(match[1], match[2])
    meter = meter_symbol(fields["M"]) if "M" in fields else ""
    length = measure(meter)
    default = TICKS // 2 if length and length < 6 else TICKS  # ABC's rule if L: is missing
    reader = _Reader(meter, _unit(fields["L"]) if "L" in fields else default, strict)
    if meter:
        reader.items.append(meter)
    for line, match in zip(lines[max(head, 0) :], matches[max(head, 0) :], strict=True):
        if match:
            reader.read_field(match[1], match[2])
        else:
            reader.read_line(line)
    if not any(isinstance(item, _Note) for item in reader.items):
        raise UnreadableTune("no notes")
    return reader.symbols()


def blocks(text: str) -> list[tuple[str, bool]]:
    """The tunes of an ABC text, each with whether it is finished: followed by a blank line or another tune."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or (line.startswith("X:") and found[-1]):
            found.append([])
        if line.strip():
            found[-1].append(line)
    return [("\n".join(lines), i + 1 < len(found)) for i, lines in enumerate(found) if lines]


def symbols_of(text: str) -> list[str]:
    """The symbols of an ABC text, whole tunes or a fragment, with END after each finished tune."""
    symbols: list[str] = []
    for block, finished in blocks(text):
        try:
            # Without a header it may not be ABC at all, but words.
            symbols += parse(block, strict=not re.search("^K:", block, re.MULTILINE))
        except UnreadableTune as error:
            raise BadValue(f"this ABC cannot be read: {error}") from error
        if finished:
            symbols.append(END)
    return symbols


def abc_of(symbols: Sequence[str]) -> str:
    """The ABC of symbols, the inverse of `symbols_of`; symbols without meter and key become only a body."""
    texts: list[str] = []
    tune: list[str] = []
    for symbol in (*symbols, None):
        if symbol not in (END, None):
            tune.append(str(symbol))
            continue
        headed = bool(tune) and role(tune[0]) in ("key", "meter")
        text = to_abc(tune, number=len(texts) + 1) if headed else _lay_out(tune, "")
        texts.append(text.rstrip("\n") + ("\n\n" if symbol == END else ""))
        tune = []
    return "".join(texts)


def repaired(symbols: Sequence[str]) -> list[str]:
    """A tune without tuplet marks that lack notes and without empty bars."""
    whole: list[str] = []
    for place, symbol in enumerate(symbols):
        if role(symbol) == "tuplet":
            notes, _, span = (*(int(n) for n in symbol[1:].split(":")), 0, 0)[:3]
            governed = symbols[place + 1 : place + 1 + (span or notes)]
            if len(governed) < (span or notes) or any(role(each) not in ("note", "rest") for each in governed):
                continue
        elif symbol == "|" and (not whole or role(whole[-1]) in ("bar", "key", "meter")):
            continue
        whole.append(symbol)
    return whole


def to_abc(symbols: Iterable[str], title: str = "", number: int = 1) -> str:
    """A tune as a page of ABC: header, four bars per line, notes grouped by beats."""
    tune = [symbol for symbol in symbols if symbol != END]
    head = list(takewhile(lambda s: role(s) in ("key", "meter"), tune))
    meter = next((s for s in head if role(s) == "meter"), "")
    key = next((s for s in head if role(s) == "key"), "K:Cmaj")
    lines = [f"X:{number}", f"T:{title or f'Tune {number}'}", *([meter] if meter else []), "L:1/8", key]
    return "\n".join([*lines, _lay_out(tune[len(head) :], meter)]) + "\n"


def _beat(meter: str) -> Fraction:
    """Eighths that are beamed together in a meter."""
    eighths = measure(meter)
    if eighths is None:
        return Fraction(2)
    if meter == "M:2/2":
        return Fraction(4)
    return Fraction(3) if meter.endswith("/8") and eighths % 3 == 0 else Fraction(2)


def _lay_out(symbols: Sequence[str], meter: str) -> str:
    """The body of a tune in ABC: a line ends after four bars or a section; spaces separate beats, not their notes."""
    lines = [""]
    bars, place = 0, Fraction(0)  # bars on this line, eighths since the last bar
    scale, left = Fraction(1), 0  # of the current tuplet
    roles = [role(symbol) for symbol in symbols]
    for symbol, now, before, after in zip(symbols, roles, ["", *roles], [*roles[1:], ""], strict=False):
        if symbol == "|:" and lines[-1]:
            lines, bars = [*lines, ""], 0
        inside_beat = before in ("note", "rest") and place % _beat(meter) != 0
        glued = before == "tuplet" or (now == "ending" and before == "bar")
        glued = glued or (now in ("note", "rest", "tuplet") and inside_beat) or not lines[-1]
        lines[-1] += ("" if glued else " ") + (f"[{symbol}]" if now in ("key", "meter") else symbol)
        if now == "meter":
            meter = symbol
        elif now == "tuplet":
            scale, left = tuplet(symbol, meter)
        elif now in ("note", "rest"):
            place += length(symbol) * (scale if left else 1)
            left = max(0, left - 1)
        elif now == "bar":
            bars, place = bars + (symbol != "|:"), Fraction(0)
            if (bars == 4 or symbol not in ("|", "|:")) and after not in ("", "ending"):
                lines, bars = [*lines, ""], 0
    return "\n".join(lines)
