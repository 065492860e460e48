"""The table of mean m by class of symbol that `vcdeploy eval` and `vcdeploy trace` print."""

from collections.abc import Mapping

from rich.table import Table

from vcdeploy.analysis.spending import Spent


def spending_table(classes: Mapping[str, Spent], mean: float) -> Table:
    """Build the table; `mean` is the mean of m over all symbols."""
    table = Table("class", "symbols", "mean m", "relative to mean", box=None, title="computation by class of symbol")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, spent in classes.items():
        table.add_row(name, f"{spent['symbols']:,}", f"{spent['m']:.4f}", f"{spent['m'] / mean:.2f}")
    return table
