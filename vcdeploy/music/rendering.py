"""Renders a tune's symbols as MIDI, as a score or as sound.

Pitches are computed here, following the ABC standard: music21's own ABC reader ignores key changes within a tune and
accidentals that last to the end of the bar. music21 writes the MIDI and the MusicXML, Verovio draws the score.
"""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from vcdeploy import extras
from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation

QUARTERS_A_MINUTE = 160  # between a waltz and a reel
RATE = 22050  # samples per second
OVERTONES = (1.0, 0.4, 0.25, 0.12, 0.08, 0.04)

_FIFTHS = {letter: place - 1 for place, letter in enumerate("FCGDAEB")}  # C is 0
_MODES = {"maj": 0, "min": -3, "dor": -2, "phr": -4, "lyd": 1, "mix": -1, "loc": -5}
_ALTER = {"^": 1, "^^": 2, "_": -1, "__": -2, "=": 0}
_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


class Note(NamedTuple):
    """A note at sounding pitch, or a rest (step is empty)."""

    step: str  # C … B
    alter: int  # semitones up
    octave: int  # 4 starts at middle C
    eighths: Fraction

    @property
    def midi(self) -> int:
        return 12 * (self.octave + 1) + _STEPS[self.step] + self.alter


def fifths(key: str) -> int:
    """Number of sharps of a key symbol; flats count as negative."""
    if key == "K:none":
        return 0
    tonic, sign, mode = key[2], key[3:-3], key[-3:]
    return _FIFTHS[tonic] + 7 * {"": 0, "#": 1, "b": -1}[sign] + _MODES[mode]


def _signature(key: str) -> dict[str, int]:
    """Semitones that a key adds to each letter."""
    count, letters = fifths(key), "FCGDAEB"
    altered = dict.fromkeys(letters, 0)
    for place in range(abs(count)):
        altered[letters[place % 7] if count > 0 else letters[::-1][place % 7]] += 1 if count > 0 else -1
    return altered


def notes(tune: Sequence[str]) -> list[Note | None]:
    """The note of each symbol, or None, with key, accidentals up to the bar and tuplets applied."""
    altered, in_bar = _signature("K:Cmaj"), dict[str, int]()
    meter, scale, left = "", Fraction(1), 0
    found: list[Note | None] = []
    for symbol in tune:
        role, note = notation.role(symbol), None
        if role == "key":
            altered, in_bar = _signature(symbol), {}
        elif role == "meter":
            meter = symbol
        elif role == "bar":
            in_bar, left = {}, 0
        elif role == "tuplet":
            scale, left = notation.tuplet(symbol, meter)
        elif role in ("note", "rest"):
            eighths = notation.length(symbol) * (scale if left else 1)
            left = max(0, left - 1)
            if role == "rest":
                note = Note("", 0, 0, eighths)
            else:
                sign, letter, marks = re.fullmatch(r"([\^_=]*)([A-Ga-g])([,']*)", notation.pitch(symbol)).groups()  # type: ignore[union-attr]
                step = letter.upper()
                if sign:
                    in_bar[step] = _ALTER[sign]  # in every octave: the default of the ABC standard
                octave = 4 + letter.islower() + marks.count("'") - marks.count(",")
                note = Note(step, in_bar.get(step, altered[step]), octave, eighths)
        found.append(note)
    return found


def played(tune: Sequence[str]) -> list[int]:
    """The indices of a tune's symbols in playing order, with repeats and alternative endings followed."""
    order: list[int] = []
    at = start = 0
    turn, closing = 1, False  # closing: in the last ending, after which the tune continues
    while at < len(tune):
        symbol = tune[at]
        role = notation.role(symbol)
        if symbol in (":|", "::") and turn == 1 and not closing:
            at, turn = start, 2
            continue
        if role == "ending":
            if turn == 2 and not _has_turn(symbol, 2):
                # Skip this ending up to its repeat sign; an ending right after it is for the second turn.
                at = next((i + 1 for i in range(at, len(tune)) if tune[i] in (":|", "::")), len(tune))
                start, turn = at, 1
                closing = at < len(tune) and notation.role(tune[at]) == "ending"
                if closing:
                    at += 1
                continue
        elif role == "bar" and symbol != "|":
            start, turn, closing = at + 1, 1, False
        else:
            order.append(at)
        at += 1
    return order


def _has_turn(ending: str, turn: int) -> bool:
    """Whether an ending such as `[1`, `[1,3` or `[1-3` is for this turn."""
    for part in ending[1:].split(","):
        first, _, last = part.strip(".").partition("-")
        if first.isdigit() and int(first) <= turn <= int(last if last.isdigit() else first):
            return True
    return False


def heard(tune: Sequence[str]) -> list[Note]:
    """The notes and rests of a tune in playing order."""
    written = notes(tune)
    return [note for place in played(tune) if (note := written[place]) is not None]


def to_midi(tune: Sequence[str], title: str) -> bytes:
    """A standard MIDI file, with title (the name of its tracks), tempo, meter and key, and their changes."""
    extras.require("music21", for_="writing MIDI")
    from music21 import midi, stream, tempo

    track_name: Any = midi.MetaEvents.SEQUENCE_TRACK_NAME  # music21 types it as int

    part = stream.Part()
    part.append(tempo.MetronomeMark(number=QUARTERS_A_MINUTE))
    written, current = notes(tune), {"key": "", "meter": ""}
    for place in played(tune):
        symbol, note = tune[place], written[place]
        role = notation.role(symbol)
        if note is not None:
            part.append(_music21_note(note))
        elif role in current and symbol != current[role]:  # a repeat passes the same ones again
            current[role] = symbol
            part.append(_music21_fields(symbol))
    score = stream.Score([part])

    def write() -> bytes:
        file = midi.translate.streamToMidiFile(score)
        for track in file.tracks:  # music21 writes no name, or an empty one
            names = [each for each in track.events if each.type == track_name]
            if not names:
                names = [midi.MidiEvent(track, type=track_name)]
                track.events = [midi.DeltaTime(track, 0), *names, *track.events]
            names[0].data = title.encode()
        content: bytes = file.writestr()
        return content

    content: bytes = _by_music21(write)
    return content


def to_svg(tune: Sequence[str], title: str) -> bytes:
    """The score as SVG, on one page as high as needed."""
    for module in ("music21", "verovio"):
        extras.require(module, for_="drawing a score")
    import verovio
    from music21.musicxml.m21ToXml import GeneralObjectExporter

    xml = _by_music21(lambda: GeneralObjectExporter(_score(tune, title)).parse())
    verovio.enableLog(verovio.LOG_OFF)
    toolkit = verovio.toolkit()
    # With a fixed seed of the ids, the same tune gives the same file.
    toolkit.setOptions({"adjustPageHeight": True, "pageHeight": 60000, "footer": "none", "xmlIdSeed": 1, "scale": 60})
    if not toolkit.loadData(xml.decode()):
        raise VcdeployError("Verovio can't draw this tune; try another --seed, or --format abc to see it")
    svg: str = toolkit.renderToSVG(1)
    return svg.encode()


def to_wav(tune: Sequence[str], title: str) -> bytes:
    """WAV audio, 16 bits, mono; every note is a decaying sum of overtones, like a plucked string."""
    eighth = 30 / QUARTERS_A_MINUTE  # seconds
    sounding = heard(tune)
    ring = 0.25  # seconds a note rings on after its length
    total = float(sum(note.eighths for note in sounding)) * eighth + ring
    sound = np.zeros(int(total * RATE) + 1)
    start = 0.0
    for note in sounding:
        seconds = float(note.eighths) * eighth
        if note.step:
            t = np.arange(int((seconds + ring) * RATE)) / RATE
            frequency = 440 * 2 ** ((note.midi - 69) / 12)
            tone = sum(
                size * np.exp(-(1 + n) * 1.5 * t) * np.sin(2 * np.pi * n * frequency * t)
                for n, size in enumerate(OVERTONES, 1)
                if n * frequency < RATE / 2  # higher overtones would alias
            )
            # Fade in over 5 ms and out over the ring, to avoid clicks.
            tone *= np.minimum(1, t / 0.005) * np.clip((seconds + ring - t) / ring, 0, 1)
            place = int(start * RATE)
            sound[place : place + len(t)] += tone[: len(sound) - place]
        start += seconds
    loudest = np.abs(sound).max()
    levels = np.rint(sound * (0.8 * 32767 / loudest if loudest else 0)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(levels.tobytes())
    return file.getvalue()


def _by_music21(write: Callable[[], Any]) -> Any:
    try:
        return write()
    except Exception as error:  # music21's exceptions have no common type
        raise VcdeployError(
            f"music21 can't write this tune ({error}); try another --seed, or --format abc to see it"
        ) from error


def _music21_note(note: Note) -> Any:
    from music21 import note as notation
    from music21 import pitch

    quarters = note.eighths / 2
    if not note.step:
        return notation.Rest(quarterLength=quarters)
    step: Any = note.step  # music21 expects a literal type
    accidental = pitch.Accidental(note.alter) if note.alter else None
    return notation.Note(pitch.Pitch(step=step, octave=note.octave, accidental=accidental), quarterLength=quarters)


def _music21_fields(symbol: str) -> list[Any]:
    """The signature of a key or meter symbol; none for a free meter. MIDI knows major and minor keys only."""
    from music21 import key, meter

    if symbol.startswith("K:"):
        tonic, mode = symbol[2:-3].replace("b", "-"), symbol[-3:]
        named = {"maj": "major", "min": "minor"}.get(mode)
        return [key.Key(tonic, named) if named and symbol != "K:none" else key.KeySignature(fifths(symbol))]
    if notation.measure(symbol) is None:
        return []
    return [meter.TimeSignature(re.sub(r"\(([\d+]+)\)", r"\1", symbol[2:]))]


def _score(tune: Sequence[str], title: str) -> Any:
    """A music21 score of the tune as written, in measures with their bars and endings."""
    from music21 import bar, clef, metadata, spanner, stream

    part, measure = stream.Part(), stream.Measure(number=1)
    measure.append(clef.TrebleClef())
    bracket: Any = None

    def close(right: Any = None) -> None:
        nonlocal measure
        if right is not None:
            measure.rightBarline = right
        part.append(measure)
        if bracket is not None:
            bracket.addSpannedElements(measure)
        measure = stream.Measure(number=measure.number + 1)

    for symbol, note in zip(tune, notes(tune), strict=True):
        role = notation.role(symbol)
        if note is not None:
            measure.append(_music21_note(note))
        elif role in ("key", "meter"):
            measure.append(_music21_fields(symbol))
        elif role == "ending":
            bracket = spanner.RepeatBracket(number=symbol[1:])
            part.insert(0, bracket)
        elif role == "bar":
            repeats = bar.Repeat(direction="end") if symbol in (":|", "::") else None
            style = {"||": "double", "|]": "final"}.get(symbol)
            if measure.notesAndRests or repeats:
                close(repeats or (bar.Barline(style) if style else None))
            if symbol != "|":
                bracket = None
            if symbol in ("|:", "::"):
                measure.leftBarline = bar.Repeat(direction="start")
    if measure.notesAndRests:
        close()
    score = stream.Score([part])
    score.metadata = metadata.Metadata(title=title, composer="vcdeploy")
    return score


WRITERS: dict[str, Callable[[Sequence[str], str], bytes]] = {"midi": to_midi, "svg": to_svg, "wav": to_wav}
