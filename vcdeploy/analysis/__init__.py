"""Where a model spends its computation: traces, m by class of symbol, Pareto fronts, charts and pages."""

from vcdeploy.analysis.pareto import front
from vcdeploy.analysis.spending import Spent, Word, parts, peaks, spent, words
from vcdeploy.analysis.traces import Trace, blocks, trace

__all__ = ["Spent", "Trace", "Word", "blocks", "front", "parts", "peaks", "spent", "trace", "words"]
