"""The training domain: a box and an ellipsoid."""

import numpy as np
import pytest

from pullback.learning.domain import Domain

RNG = np.random.default_rng(0)
CORRELATED = RNG.normal(size=(300, 1)) @ np.ones((1, 2)) + 0.05 * RNG.normal(size=(300, 2))


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e6])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_every_training_row_is_inside(scale, offset):
    x = offset + scale * RNG.normal(size=(200, 3))

    assert not Domain.from_rows(x).outside(x).any()


def test_beyond_the_box():
    domain = Domain.from_rows(CORRELATED)

    assert domain.outside(np.array([[5.0, 5.0], [-9.0, 0.0], [0.0, 0.0]])).tolist() == [1, 1, 0]


def test_within_the_box_but_off_the_data():
    corner = np.array([[2.0, -2.0]])
    domain = Domain.from_rows(CORRELATED)

    assert (corner > domain.lower).all()
    assert (corner < domain.upper).all()
    assert domain.outside(corner).all()


def test_distance_is_mahalanobis():
    domain = Domain.from_rows(CORRELATED)
    centred = CORRELATED - CORRELATED.mean(0)
    inverse = np.linalg.inv(np.cov(CORRELATED.T, bias=True))
    expected = np.sqrt(np.einsum("nd,de,ne->n", centred, inverse, centred))

    np.testing.assert_allclose(domain.distance(CORRELATED), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "x",
    [
        np.array([[1.0, 2.0]]),
        np.full((5, 2), 3.0),
        np.column_stack([np.arange(5.0), np.full(5, 2.0)]),
        np.column_stack([np.arange(5.0), 2 * np.arange(5.0)]),
    ],
    ids=["one row", "one place", "a constant input", "a line"],
)
def test_flat_data(x):
    domain = Domain.from_rows(x)

    assert not domain.outside(x).any()
    assert domain.outside(x[:1] + 10.0).all()


def test_a_row_off_a_constant_input_is_outside():
    x = np.column_stack([RNG.normal(size=50), np.full(50, 2.0)])

    assert Domain.from_rows(x).outside(np.array([[0.0, 2.001], [0.0, 2.0]])).tolist() == [1, 0]
