"""The size of a unit with the same cost as another, by the paper's count (vcdeploy.cost)."""

from vcdeploy import cost

CLOSE = 0.01  # relative error of rnn_d: what whole numbers allow at D = 50; tables show the actual rnn_d of each row


def matched_dim(
    unit: str,
    rnn_d: float,
    *,
    layers: int = 1,
    budget: float | None = None,
    boundaries: float = 0.0,
    trained: int | None = None,
) -> int:
    """The dim at which a unit has this rnn_d, rounded to a whole number.

    budget: the fraction of the dense unit's rnn_d a variable unit may spend. boundaries: the fraction of steps at which
    a CRNN's slow layer updates. trained: a dim that already has results; it is kept while it is close enough, so that
    such rows need not be trained again whenever the row they match is.
    """
    squares = [1.0, boundaries] if unit == "crnn" else [1.0] * layers
    exact = rnn_d / cost.rnn_d(unit, 1, squares) / (budget or 1.0)
    if trained is not None and abs(trained / exact - 1) <= CLOSE:
        return trained
    return max(1, round(exact))
