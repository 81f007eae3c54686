import json

import pytest

from pullback.errors import InputError
from pullback.learning.columns import Columns

COLUMNS = Columns(("spot", "vol"), ("price", "fee"), {"price": "USD", "spot": "USD", "vol": "1/a"})


def test_derivative_names_run_over_inputs_fastest():
    assert COLUMNS.derivatives == ("dprice/dspot", "dprice/dvol", "dfee/dspot", "dfee/dvol")


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("spot", "USD"),
        ("fee", ""),
        ("dprice/dspot", "1"),
        ("dprice/dvol", "USD/(1/a)"),
        ("dfee/dspot", ""),
        ("no such", ""),
    ],
)
def test_units_follow_the_quotient(name, unit):
    assert COLUMNS.unit(name) == unit
    assert COLUMNS.label(name) == (f"{name} [{unit}]" if unit else name)


@pytest.mark.parametrize("outputs", [("y",), ("y0", "y1")])
def test_default_names(outputs):
    columns = Columns.default(3, len(outputs))
    assert columns == Columns(("x0", "x1", "x2"), outputs, {})


def test_survives_json():
    assert Columns.from_json(json.loads(json.dumps(COLUMNS.to_json()))) == COLUMNS


def test_is_hashable_and_apart_from_the_callers_dict():
    units = {"y": "m"}
    columns = Columns(("x",), ("y",), units)
    units["x"] = "s"
    assert columns.units == {"y": "m"}
    assert hash(columns) == hash(Columns(("x",), ("y",)))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Columns(("a", "b"), ("a",)), "got 'a' twice"),
        (lambda: Columns(("a",), ("b",), {"c": "m"}), "'c', which is no input or output"),
        (lambda: Columns.from_json({"inputs": "ab", "outputs": ["y"]}), "lists of names"),
        (lambda: Columns.from_json({"inputs": ["a"]}), "lists of names"),
        (
            lambda: Columns.from_json({"inputs": ["a"], "outputs": ["y"], "units": {"a": 1}}),
            "units to be text",
        ),
    ],
)
def test_errors(build, words):
    with pytest.raises(InputError, match=words):
        build()
