"""What a model costs and where it spends: counted operations, traces, plots, pages."""

from vcdeploy.analysis.pareto import front
from vcdeploy.analysis.spending import Spent, Word, parts, peaks, spent, words
from vcdeploy.analysis.traces import Trace, blocks, trace

__all__ = ["Spent", "Trace", "Word", "blocks", "front", "parts", "peaks", "spent", "trace", "words"]
