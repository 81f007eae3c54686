"""Twin: any module with its derivative, by either route, in every mode."""

import contextlib
import copy
import pickle

import pytest
import torch
from tests.learning.problems import SMOOTH, as_sequential, draw, mlp
from tests.references import assert_close, jacobian_by_loop
from torch import nn

from pullback.errors import CoupledRowsError, PiecewiseLinearWarning, ShapeError
from pullback.learning.networks import MLP, Twin

X, V = draw(5, 3, seed=1), draw(5, 3, seed=2)
MODES = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def both_routes(**case):
    """The explicit pass, and autograd through the same weights."""
    net = mlp(**case)
    return Twin(net), Twin(as_sequential(net))


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("outputs", [1, 3])
class TestRoutes:
    def test_same_values_and_derivatives(self, activation, outputs):
        explicit, generic = both_routes(activation=activation, outputs=outputs, omega_0=3)

        for got, expected in zip(generic(X), explicit(X), strict=True):
            assert_close(got, expected, tolerance=1e-12)
        for got, expected in zip(
            generic.value_jacobian_and_hvp(X, V), explicit.value_jacobian_and_hvp(X, V), strict=True
        ):
            assert_close(got, expected, tolerance=1e-12)

    def test_same_gradient_in_every_weight(self, activation, outputs):
        explicit, generic = both_routes(activation=activation, outputs=outputs, omega_0=3)
        gradients = []
        for twin in (explicit, generic):
            explicit.zero_grad()
            y, jac, hvp = twin.value_jacobian_and_hvp(X, V)
            (y.sin().sum() + jac.square().sum() + hvp.square().sum()).backward()
            gradients.append([p.grad for p in explicit.parameters()])

        for got, expected in zip(*gradients, strict=True):
            assert_close(got, expected, tolerance=1e-11)


class TestModes:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("route", [0, 1])
    @pytest.mark.parametrize("activation", ["softplus", torch.tanh])
    def test_right_in_every_grad_mode(self, mode, route, activation):
        twin = both_routes(activation=activation, outputs=2)[route]
        expected = [t.detach() for t in twin.value_jacobian_and_hvp(X, V)]
        with MODES[mode]():
            made_here, v = X.clone(), V.clone()
            got = twin.value_jacobian_and_hvp(made_here, v)
            short = twin(made_here)

        for one, other in zip((*got, *short), (*expected, *expected[:2]), strict=True):
            assert torch.equal(one, other)
            assert one.requires_grad == (mode == "grad")

    def test_differentiable_in_the_input_too(self):
        for twin in both_routes(outputs=2):
            x = X.clone().requires_grad_()
            jac = twin(x)[1]
            (again,) = torch.autograd.grad(jac.sum(), x)
            hvp = twin.value_jacobian_and_hvp(X, torch.ones(3).double())[2]

            assert_close(again, hvp.sum(1))

    @pytest.mark.parametrize("again", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
    def test_copied_and_pickled(self, again):
        for twin in (Twin(mlp(activation="gelu")), Twin(nn.Sequential(nn.Linear(3, 2)).double())):
            other = again(twin)
            twin_weights, other_weights = list(twin.parameters()), list(other.parameters())

            for one, two in zip(twin(X), other(X), strict=True):
                assert torch.equal(one, two)
            assert not any(a is b for a, b in zip(twin_weights, other_weights, strict=True))

    def test_a_copied_activation_module_stays_the_one_that_is_trained(self):
        with pytest.warns(PiecewiseLinearWarning):
            net = copy.deepcopy(mlp(activation=nn.PReLU()))
        before = net.value_and_jacobian(X)[1].clone()
        with torch.no_grad():
            net.activation_module.weight.fill_(0.9)

        assert not torch.equal(net.value_and_jacobian(X)[1], before)


class TestModules:
    @pytest.mark.parametrize(
        "module",
        [
            nn.Linear(3, 2),
            nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)),
            nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).eval(),
        ],
    )
    def test_any_module_with_independent_rows(self, module):
        twin = Twin(module.double())

        assert_close(twin(X)[1], jacobian_by_loop(module, X))

    def test_rows_of_any_shape(self):
        module = nn.Sequential(
            nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)
        ).double()
        x = draw(4, 2, 5)
        y, jac = Twin(module)(x)

        assert (y.shape, jac.shape) == ((4, 2), (4, 2, 2, 5))
        assert_close(jac, jacobian_by_loop(module, x))

    @pytest.mark.parametrize("module", [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.ReLU())])
    def test_no_curvature_is_zero_and_not_an_error(self, module):
        hvp = Twin(module.double()).value_jacobian_and_hvp(X, V)[2]

        assert hvp.shape == (5, module(X.to(next(module.parameters()))).shape[1], 3)
        assert not hvp.any()

    def test_nothing_of_the_callers_is_changed(self):
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
        module.double().eval()
        buffers = {name: b.clone() for name, b in module.named_buffers()}
        x = X.clone()
        Twin(module).value_jacobian_and_hvp(x, V)

        assert not x.requires_grad
        assert x.grad is None
        assert all(p.grad is None for p in module.parameters())
        assert all(torch.equal(b, buffers[name]) for name, b in module.named_buffers())
        assert not module.training


class Centred(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)).sum(1, keepdim=True)


class TestCoupledRows:
    @pytest.mark.parametrize(
        "module", [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), Centred()]
    )
    def test_refused(self, module):
        with pytest.raises(CoupledRowsError, match="row of f"):
            Twin(module.double())(X)

    def test_seen_after_a_first_call_with_one_row(self):
        twin = Twin(Centred())
        twin(X[:1])

        with pytest.raises(CoupledRowsError):
            twin(X)

    def test_seen_when_a_module_goes_back_to_train_mode(self):
        twin = Twin(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().eval())
        twin(X)

        with pytest.raises(CoupledRowsError, match="BatchNorm"):
            twin.train()(X)

    def test_the_check_can_be_turned_off(self):
        assert Twin(Centred(), check_rows=False)(X)[1].shape == (5, 1, 3)


def test_an_activations_own_weight_is_trained_by_derivatives_alone():
    with pytest.warns(PiecewiseLinearWarning):
        twin = Twin(mlp(activation=nn.PReLU()))
    twin(X)[1].square().sum().backward()

    assert twin.module.activation_module.weight.grad.abs() > 1e-3


def test_a_wrong_width_is_named():
    with pytest.raises(ShapeError, match=r"\[N, 3\]"):
        Twin(MLP(3))(torch.zeros(5, 2))
