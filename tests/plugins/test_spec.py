"""plugins/common/spec.h and the Python tables agree on every unit and every precision."""

import importlib
import importlib.util

from vcdeploy import _native

SPEC = "vcdeploy.spec"


def expected() -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """The Python side: gates and state rows of every variable unit, bytes of every precision."""
    if importlib.util.find_spec(SPEC) is not None:
        spec = importlib.import_module(SPEC)
        units = {unit.name: (len(unit.gates), unit.state_rows) for unit in spec.UNITS.values() if unit.variable}
        return units, {each.name: each.bytes for each in spec.PRECISIONS.values()}
    steps, variable = importlib.import_module("vcdeploy.format.steps"), importlib.import_module("vcdeploy.units")
    precision = importlib.import_module("vcdeploy.format.precision")
    units = {name: (gates, getattr(variable, name.upper()).state_rows) for name, gates in steps.GATES.items()}
    return units, {name: {"f32": 4, "int8": 1}.get(name, 2) for name in precision.ROUNDING}


def test_units_are_those_of_python() -> None:
    units = {name: (len(row["gates"]), row["state_rows"]) for name, row in _native.spec()["units"].items()}
    assert units == expected()[0]


def test_gates_have_the_order_of_python() -> None:
    gates = {name: row["gates"] for name, row in _native.spec()["units"].items()}
    assert gates == {"vcrnn": ("h",), "vcgru": ("r", "z", "h"), "vclstm": ("i", "f", "g", "o")}
    if importlib.util.find_spec(SPEC) is not None:
        assert gates == {name: importlib.import_module(SPEC).UNITS[name].gates for name in gates}


def test_ops_are_named_as_in_the_file() -> None:
    assert all(row["op"] == name.upper() for name, row in _native.spec()["units"].items())


def test_precisions_are_those_of_python() -> None:
    assert {name: row["bytes"] for name, row in _native.spec()["precisions"].items()} == expected()[1]
