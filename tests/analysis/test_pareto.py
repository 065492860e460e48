"""The Pareto front, against its definition."""

import random

from vcdeploy.analysis import front


def by_definition(points: list[tuple[int, int]]) -> set[int]:
    def beaten(x: int, y: int) -> bool:
        return any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)

    return {index for index, point in enumerate(points) if not beaten(*point)}


def test_the_front_has_the_points_no_other_beats() -> None:
    draw = random.Random(0)
    for size in range(12):
        for _ in range(50):
            points = [(draw.randrange(6), draw.randrange(6)) for _ in range(size)]  # with ties, and twice the same
            found = front(points)
            assert set(found) == by_definition(points)
            assert len(set(found)) == len(found)
            assert [points[each] for each in found] == sorted(points[each] for each in found)
