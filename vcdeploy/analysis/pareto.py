"""The Pareto front: of models with a cost and a score, those that no other beats in both."""

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which of the points (cost, score), less of either being better, are on the front, by rising cost.

    A point is on it unless another has at most its cost and at most its score, and less of one of them.
    """
    found: list[int] = []
    for index in sorted(range(len(points)), key=lambda each: points[each]):
        if not found or points[index][1] < points[found[-1]][1] or points[index] == points[found[-1]]:
            found.append(index)
    return found
