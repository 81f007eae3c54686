"""A network between scalings: chunks, units and modes."""

import numpy as np
import pytest
import torch
from tests.learning.problems import as_sequential, draw, mlp

from pullback.learning import surrogate
from pullback.learning.networks import Twin
from pullback.learning.scaling import Scaling
from pullback.learning.surrogate import Surrogate

SCALING = Scaling(
    *(
        torch.tensor(t).double()
        for t in ([5.0, 1e6, 0.0], [2.0, 1e-3, 1e4], [1.0, -3.0], [7.0, 1e-5])
    )
)
X = (SCALING.x_shift + SCALING.x_scale * draw(9, 3)).numpy()


def make(net=None):
    return Surrogate(Twin(net or mlp(outputs=2)).eval(), SCALING, 2)


def by_differences(f, x, step):
    """Central differences in the user's units, a step per input."""
    columns = []
    for d in range(3):
        h = np.zeros(3)
        h[d] = step * float(SCALING.x_scale[d])
        columns.append((f(x + h) - f(x - h)) / (2 * h[d]))
    return np.stack(columns, -1)


@pytest.mark.parametrize("net", [mlp(outputs=2), as_sequential(mlp(outputs=2))])
class TestDerivatives:
    def test_gradients_are_those_of_its_own_values(self, net):
        one = make(net)
        y, jac = one.values_and_jacobian(X)

        assert np.array_equal(y, one.values(X))
        expected = by_differences(one.values, X, 1e-3)
        # Relative to the largest of each derivative: rounding in x = 1e6 ± 1e-3 leaves 1e-7 / 1e-3.
        largest = np.abs(expected).max(0)
        assert (np.abs(jac - expected).max(0) < 1e-3 * largest).all()

    def test_hessians_are_those_of_its_own_gradients(self, net):
        one = make(net)
        expected = by_differences(lambda x: one.values_and_jacobian(x)[1], X, 1e-4)
        hessian = one.hessian(X)

        assert (np.abs(hessian - expected).max(0) < 1e-2 * np.abs(expected).max(0)).all()
        assert np.allclose(hessian, hessian.transpose(0, 1, 3, 2), rtol=1e-9, atol=0)


@pytest.mark.parametrize("rows", [1, 2, 9, 100])
def test_chunks_of_any_size_give_the_same(rows, monkeypatch):
    whole = make().values(X), *make().values_and_jacobian(X), make().hessian(X)
    monkeypatch.setattr(surrogate, "_MOST_ROWS", rows)

    for one, other in zip(
        (make().values(X), *make().values_and_jacobian(X), make().hessian(X)), whole, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_largest_result_is_bounded(monkeypatch):
    seen = []
    monkeypatch.setattr(surrogate, "_NUMBERS", 40)
    one = make()
    one.twin.module.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    one.values(X)
    one.twin.module.forward(torch.zeros(1, 3).double())

    assert max(seen) * 2 <= 40
    assert one.hessian(X).shape == (9, 2, 3, 3)


def test_modes_and_numbers_of_the_caller_are_left_alone():
    one = make()
    one.twin.train()
    x = X.copy()
    one.values_and_jacobian(x)

    assert one.twin.training
    assert one.twin.module.training
    assert np.array_equal(x, X)
    assert all(p.grad is None for p in one.twin.parameters())


def test_a_float32_network_sees_standardised_rows():
    """x = 1e6 ± 1e-3 has one value in float32."""
    net = mlp(outputs=2).float()
    y = Surrogate(Twin(net).eval(), SCALING, 2).values(X)

    assert y.dtype == np.float64
    np.testing.assert_allclose(y, make().values(X), rtol=1e-4, atol=1e-4)
