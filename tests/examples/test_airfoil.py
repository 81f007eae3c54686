"""The airfoil example fits values and all 16 derivatives of the installed data."""

import numpy as np
from examples.airfoil import INPUTS, compare, split


def test_derivatives_make_a_better_surrogate_of_the_same_rows():
    arms = compare(rows=1_250, epochs=150)

    plain, both = arms["values only"], arms["with derivatives"]
    assert len(both) == 1 + len(INPUTS)
    assert both["drag"] > max(0.97, plain["drag"])
    plain_mean, both_mean = (np.mean(list(arm.values())[1:]) for arm in (plain, both))
    assert both_mean > plain_mean + 0.5


def test_no_row_is_in_training_and_test():
    train, test = split(rows=500)

    assert len(train.x) == 400
    assert len(test.x) == 100
    assert not set(map(bytes, train.x)) & set(map(bytes, test.x))
    np.testing.assert_array_equal(split(rows=500)[1].dydx, test.dydx)
