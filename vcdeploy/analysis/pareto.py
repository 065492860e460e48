"""The Pareto front of models by cost and score."""

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, score) on the front, by rising cost; lower is better for both.

    A point is on the front unless another is no higher in both and lower in one.
    """
    found: list[int] = []
    for index in sorted(range(len(points)), key=lambda each: points[each]):
        if not found or points[index][1] < points[found[-1]][1] or points[index] == points[found[-1]]:
            found.append(index)
    return found
