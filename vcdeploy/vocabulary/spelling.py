"""Decodes a stream of ids to text."""

from __future__ import annotations

import codecs

import numpy as np

from vcdeploy.vocabulary.symbols import Vocabulary


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
