"""The vocabulary of a model: its symbols, and conversion between text and ids."""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.vocabulary import bits

KINDS = ("text", "bits", "music")


class Vocabulary:
    """Symbols in id order, of one kind.

    text: characters. bits: "0" and "1", with `buffer` zeros after each byte. music: the symbols of
    `vcdeploy.music.notation`.
    """

    def __init__(self, symbols: Iterable[str], kind: str = "text", buffer: int = 0) -> None:
        self.symbols = tuple(symbols)
        self.kind = kind
        self.buffer = buffer
        if kind not in KINDS:
            raise VcdeployError(f"unknown vocabulary kind {kind!r}; it is one of {', '.join(KINDS)}")
        if not all(self.symbols) or not self.symbols:
            raise VcdeployError("a vocabulary needs symbols, none of them empty; take them from the model")
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(self._ids) < len(self.symbols):
            twice = next(s for i, s in enumerate(self.symbols) if self._ids[s] != i)
            raise VcdeployError(f"the symbol {twice!r} is in the vocabulary twice; symbols must be unique")
        if kind == "bits":
            bits.check_buffer(buffer)
            if self.symbols != ("0", "1"):
                raise VcdeployError(f"a vocabulary of bits is ('0', '1'), not {self.symbols[:4]!r}")
        elif buffer:
            raise VcdeployError(f"buffer is {buffer}, but only bits have one: kind is {kind!r}")
        # Ids by code point; the last entry stands for every code point beyond the vocabulary's.
        characters = {ord(s): i for s, i in self._ids.items() if kind == "text" and len(s) == 1}
        narrow = np.int16 if len(self.symbols) < 2**15 else np.int32
        self._table = np.full(max(characters, default=0) + 2, -1, narrow)
        self._table[list(characters)] = list(characters.values())

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} symbols, kind={self.kind!r}, buffer={self.buffer})"

    def _identity(self) -> tuple[object, ...]:
        return self.symbols, self.kind, self.buffer

    def lookup(self, symbols: Sequence[str]) -> NDArray[np.signedinteger[Any]]:
        """Ids of characters (a str) or symbols (a list); -1 for those outside the vocabulary."""
        if not isinstance(symbols, str):
            return np.fromiter((self._ids.get(s, -1) for s in symbols), np.int32, len(symbols))
        codes: NDArray[Any]
        if symbols.isascii():
            codes = np.frombuffer(symbols.encode("ascii"), np.uint8)
        else:
            codes = np.frombuffer(symbols.encode("utf-32-le", errors="surrogatepass"), np.uint32)
        return self._table.take(codes, mode="clip")  # beyond the table: its last entry

    def encode(self, text: str) -> NDArray[np.int64]:
        """Ids of `text`.

        text: one id per character. bits: the UTF-8 bytes, as `vcdeploy.vocabulary.bits` lays them out.
        music: one line of symbols separated by spaces ("M:6/8 K:Gmaj |: G2 A"), or else ABC, whole
        tunes or a fragment; a tune gets its end symbol only if a blank line or another tune follows.
        """
        if not isinstance(text, str):
            raise VcdeployError(f"encode takes text, not {type(text).__name__}")
        if self.kind == "bits":
            return bits.from_text(text, self.buffer).astype(np.int64)
        symbols: Sequence[str] = text
        if self.kind == "music":
            from vcdeploy.music import notation

            symbols = text.split()
            if "\n" in text.removesuffix("\n") or not all(symbol in self._ids for symbol in symbols):
                symbols = notation.symbols_of(text)
        ids = self.lookup(symbols)
        if (ids < 0).any():
            others = int((ids < 0).sum()) - 1
            raise BadValue(
                f"{describe_unknown(symbols, ids)}, is not among the {len(self)} symbols of this vocabulary"
                + (f", nor are {others} after it; remove them" if others else "; remove it")
            )
        return ids.astype(np.int64)

    def start(self) -> NDArray[np.int64]:
        """The ids to start a text from: a newline, else a space, else the first symbol."""
        if self.kind == "bits":
            return self.encode("\n")
        return self.encode(next((each for each in "\n " if each in self._ids), self.symbols[0]))

    @property
    def period(self) -> int:
        """Symbols per character (bits: per byte): 8 bits and their buffer, else 1."""
        return 8 + self.buffer if self.kind == "bits" else 1

    def boundaries(self, ids: NDArray[Any], position: int = 0) -> NDArray[np.bool_]:
        """Mask of the ends of larger units: white space (text), the end of a byte and its buffer (bits), bars (music).

        `ids` [T] or [T, B] begin `position` symbols after the start of a text.
        """
        if self.kind == "bits":
            last = (np.arange(len(ids)) + position) % self.period == self.period - 1
            return np.broadcast_to(last.reshape(-1, *[1] * (ids.ndim - 1)), ids.shape).copy()
        if self.kind == "text":
            ends = [symbol.isspace() for symbol in self.symbols]
        else:
            from vcdeploy.music import notation

            ends = [notation.role(symbol) == "bar" for symbol in self.symbols]
        return np.array(ends)[ids]

    def decode(self, ids: ArrayLike) -> str:
        """The text of `ids`, the inverse of `encode`; music comes back as ABC."""
        try:
            array = np.asarray(ids, np.int64).ravel()
        except (TypeError, ValueError, OverflowError) as error:
            raise VcdeployError(f"decode takes ids, which are whole numbers: {error}") from error
        outside = array[(array < 0) | (array >= len(self))]
        if outside.size:
            raise VcdeployError(f"there is no symbol {outside[0]}; the ids here are 0 to {len(self) - 1}")
        if self.kind == "bits":
            return bits.to_text(array, self.buffer)
        symbols = [self.symbols[i] for i in array.tolist()]
        if self.kind == "text":
            return "".join(symbols)
        from vcdeploy.music import notation

        return notation.abc_of(symbols)


class Speller:
    """Turns ids into characters, each as soon as it is complete; with bits, a character takes several ids."""

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab, self._row = vocab, list[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def spell(self, id_: int) -> str:
        if self.vocab.kind == "text":
            return self.vocab.symbols[id_]
        self._row.append(id_)
        byte = ""
        if len(self._row) == 8:
            byte = self._decoder.decode(np.packbits(np.array(self._row, np.uint8)).tobytes())
        if len(self._row) == self.vocab.period:
            self._row = []
        return byte

    def end(self) -> str:
        return "" if self.vocab.kind == "text" else self._decoder.decode(b"", final=True)


def describe_unknown(symbols: Sequence[str], ids: NDArray[np.signedinteger[Any]]) -> str:
    """The first symbol whose id is -1, and its position."""
    at = int(np.argmax(ids < 0))
    symbol = symbols[at]
    if isinstance(symbols, str):
        line, column = symbols.count("\n", 0, at) + 1, at - symbols.rfind("\n", 0, at)
        return f"{symbol!r} (U+{ord(symbol):04X}) at line {line}, column {column}"
    from vcdeploy.music import notation

    before = list(symbols[:at])
    tune = before.count(notation.END) + 1
    start = at - before[::-1].index(notation.END) if tune > 1 else 0
    return f"{symbol!r}, symbol {at - start + 1} of tune {tune}"
