"""Text, bits and music as sequences of symbols: the catalogue of named corpora, and a user's own files."""

from vcdeploy.corpora.catalogue import CATALOGUE
from vcdeploy.corpora.corpus import Corpus
from vcdeploy.corpora.loading import load
from vcdeploy.vocabulary import Vocabulary

__all__ = ["CATALOGUE", "Corpus", "Vocabulary", "load"]
