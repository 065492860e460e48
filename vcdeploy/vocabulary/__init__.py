"""The symbols of a model: text, bits or music, and their ids."""

from vcdeploy.vocabulary.symbols import KINDS, Speller, Vocabulary, describe_unknown

__all__ = ["KINDS", "Speller", "Vocabulary", "describe_unknown"]
