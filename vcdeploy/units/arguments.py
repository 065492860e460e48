"""Arguments of the units' constructors."""


def refuse_positional(unit: str, dim: object, others: tuple[object, ...]) -> None:
    """Refuse positional arguments after dim: VCGRU(64, 128) looks like nn.GRU's sizes, and there is only one size."""
    if others:
        call = ", ".join(map(repr, (dim, *others)))
        raise TypeError(
            f"{unit}({call}): only dim may be positional. It is the size of inputs, state and outputs alike; name "
            f"everything else, such as {unit}({dim!r}, layers=2). For inputs of another size add an nn.Linear in front."
        )
