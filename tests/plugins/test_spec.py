"""plugins/common/spec.h and vcdeploy/spec.py agree on every unit that runs in native code and on every precision."""

from vcdeploy import _native
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, UNITS, VARIABLE_UNITS


def test_units_are_those_of_python() -> None:
    for name, row in _native.spec()["units"].items():
        unit = UNITS[name]
        assert row == {
            "op": unit.op,
            "variable": unit.variable,
            "gates": unit.gates,
            "state_rows": unit.state_rows,
        }
    assert tuple(_native.spec()["units"]) == (*VARIABLE_UNITS, *DENSE_UNITS)


def test_precisions_are_those_of_python() -> None:
    rows = {each.name: {"bytes": each.bytes, "levels": each.levels} for each in PRECISIONS.values()}
    assert _native.spec()["precisions"] == rows
