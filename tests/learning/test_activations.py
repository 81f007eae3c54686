"""Activations: each derivative against autograd, and what must be refused."""

import copy
import pickle

import pytest
import torch
from tests.learning.problems import PIECEWISE_LINEAR, SMOOTH
from tests.references import assert_close
from torch import nn

from pullback.errors import ActivationError
from pullback.learning.activations import ACTIVATIONS, Activation, as_activation

ALL = sorted(ACTIVATIONS)
# Around zero, where saturation begins, where exp overflows, and beyond.
Z = [-1e4, -800.0, -90.0, -41.0, -39.0, -3.1, -0.7, -1e-9, 1e-9, 0.2, 2.3, 39.0, 41.0, 90.0, 1e4]


def by_autograd(function, z):
    """σ' and σ''."""
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    if not slope.requires_grad:
        return slope, torch.zeros_like(z)
    (bend,) = torch.autograd.grad(slope.sum(), leaf, allow_unused=True)
    return slope.detach(), torch.zeros_like(z) if bend is None else bend


class TestNamed:
    def test_the_table_is_complete(self):
        assert sorted(SMOOTH + PIECEWISE_LINEAR) == ALL
        assert {name for name in ALL if ACTIVATIONS[name].piecewise_linear} == set(PIECEWISE_LINEAR)

    @pytest.mark.parametrize("name", ALL)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_derivative_equals_autograd(self, name, dtype):
        activation, z = ACTIVATIONS[name], torch.tensor(Z, dtype=dtype)
        slope = activation.derivative(z, activation(z))

        assert_close(slope, by_autograd(activation.function, z)[0])

    @pytest.mark.parametrize("name", ALL)
    def test_second_derivative_equals_autograd_and_is_finite(self, name):
        activation, z = ACTIVATIONS[name], torch.tensor(Z, dtype=torch.float64)
        leaf = z.clone().requires_grad_()
        slope = activation.derivative(leaf, activation(leaf))
        bend = torch.zeros_like(z)
        if slope.requires_grad:
            (bend,) = torch.autograd.grad(slope.sum(), leaf)

        assert bend.isfinite().all()
        assert_close(bend, by_autograd(activation.function, z)[1])

    @pytest.mark.parametrize("name", ALL)
    def test_second_derivative_in_closed_form_equals_autograd(self, name):
        activation, z = ACTIVATIONS[name], torch.tensor(Z, dtype=torch.float64)
        a = activation(z)
        bend = activation.bend(z, a, activation.derivative(z, a))

        assert activation.second is not None
        assert_close(bend, by_autograd(activation.function, z)[1])

    @pytest.mark.parametrize("name", SMOOTH)
    def test_second_derivative_survives_float32_extremes(self, name):
        leaf = torch.tensor([-1e4, -104.0, -88.0, 0.0, 88.0, 104.0, 1e4]).requires_grad_()
        ACTIVATIONS[name].derivative(leaf, ACTIVATIONS[name](leaf)).sum().backward()

        assert leaf.grad.isfinite().all()

    @pytest.mark.parametrize("name", ALL)
    def test_copied_and_pickled_as_what_it_is(self, name):
        z = torch.tensor([0.3])
        for again in (
            copy.deepcopy(ACTIVATIONS[name]),
            pickle.loads(pickle.dumps(as_activation(name))),
        ):
            assert again.name == name
            assert torch.equal(again(z), ACTIVATIONS[name](z))


class Swish(nn.Module):
    """z sigmoid(βz), with β trained."""

    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.3))

    def forward(self, z):
        return z * torch.sigmoid(self.beta * z)


ACCEPTED = [
    (torch.tanh, None),
    (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    (lambda z: z.sin() + z, lambda z: z.cos() + 1),
    ("tanh", lambda z: 1 - torch.tanh(z).square()),
    (lambda z: 3 * z, lambda z: torch.tensor(3.0)),
    (nn.Softplus(), None),
    (nn.GELU("tanh"), None),
    (nn.Mish(), None),
    (nn.Softsign(), lambda z: 1 / (1 + z.abs()) ** 2),
    (Swish(), None),
]


@pytest.mark.parametrize(("function", "derivative"), ACCEPTED)
def test_anything_elementwise_is_accepted(function, derivative):
    activation = as_activation(function, derivative)
    z = torch.linspace(-3, 3, 11, dtype=torch.float64)
    with torch.no_grad():
        slope = activation.derivative(z, activation(z))

    assert_close(
        slope.expand_as(z).double(), by_autograd(activation.function, z)[0], tolerance=1e-6
    )


def test_as_activation_leaves_an_activation_alone():
    assert as_activation(ACTIVATIONS["gelu"]) is ACTIVATIONS["gelu"]
    assert isinstance(as_activation(nn.Tanh()), Activation)
    assert as_activation(nn.Tanh()) is ACTIVATIONS["tanh"]


WRONG = {
    "the identity, where one is due": (lambda z: 1.0 * z, lambda z: z),
    "a factor is missing": (lambda z: torch.tanh(3 * z), lambda z: 1 - torch.tanh(3 * z) ** 2),
    "of another function": ("tanh", torch.cos),
    "of the value, not of z": (torch.sigmoid, lambda z: z * (1 - z)),
    "right on one side only": (nn.functional.elu, lambda z: torch.ones_like(z)),
    "the wrong sign": (torch.sin, lambda z: -torch.cos(z)),
    "not a number": (torch.sin, lambda z: z * float("nan")),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_derivative_is_refused(case):
    with pytest.raises(ActivationError, match="activation_derivative: expected the derivative of"):
        as_activation(*WRONG[case])


def test_the_refusal_says_where_and_what_to_do():
    with pytest.raises(ActivationError) as refused:
        as_activation(torch.tanh, lambda z: z)

    assert "at z = -31.7 it gives -31.7, and the slope of tanh there is 0" in str(refused.value)
    assert "or none: then it is taken by autograd" in str(refused.value)


REFUSED = {
    "softmax": (lambda z: z.softmax(-1), "depends on the others"),
    "softmax module": (nn.Softmax(dim=-1), "used through Twin"),
    "layer norm": (nn.LayerNorm(14), "elementwise|normalized_shape"),
    "minus the mean": (lambda z: z - z.mean(), "depends on the others"),
    "dropout": (nn.Dropout(), "depends on the others"),
    "a sum": (lambda z: z.sum(), r"gave \(\) for an input of \(14,\)"),
    "glu": (nn.GLU(), "for an input of"),
    "detached": (lambda z: z.detach().tanh(), "cuts the graph"),
    "no tensor": (lambda z: 1.0, "gave"),
    "unknown name": ("softpluss", "expected one of elu, gelu.*got 'softpluss'"),
    "no callable": (3, "a name, a module or a callable, got int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_elementwise_is_refused(case):
    function, words = REFUSED[case]

    with pytest.raises((ActivationError, RuntimeError), match=words):
        as_activation(function)


@pytest.mark.parametrize(
    "function",
    [nn.PReLU(), nn.ReLU6(), nn.Hardtanh(), nn.Threshold(0.1, 0.0), torch.abs, lambda z: 2 * z],
)
def test_piecewise_linear_is_recognised(function):
    assert as_activation(function).piecewise_linear


@pytest.mark.parametrize("function", [nn.SELU(), nn.CELU(), nn.Hardswish(), Swish(), torch.atan])
def test_curved_is_not_taken_for_piecewise_linear(function):
    assert not as_activation(function).piecewise_linear
