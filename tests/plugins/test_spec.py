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
    bytes_of = {name: row["bytes"] for name, row in _native.spec()["precisions"].items()}
    assert bytes_of == {each.name: each.bytes for each in PRECISIONS.values()}
