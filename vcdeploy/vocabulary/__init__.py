"""The symbols of a model: text, bits or music, and their ids."""

from vcdeploy.vocabulary.symbols import KINDS, Vocabulary, describe_unknown

__all__ = ["KINDS", "Vocabulary", "describe_unknown"]
