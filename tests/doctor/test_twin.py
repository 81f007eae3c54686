"""Hand-written derivatives: right ones pass, each forgotten factor is named with its layer."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from pullback.doctor import check_twin
from pullback.errors import InputError, ShapeError


class Story(nn.Module):
    """The network of the question: omega_0 * Linear, an activation and its derivative."""

    def __init__(self, derivative, omega_forward=3.0, omega_backward=3.0, depth=3):
        super().__init__()
        self.omega, self.back, self.derivative = omega_forward, omega_backward, derivative
        sizes = [2, *[5] * (depth - 1), 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x):
        zs, a = [], x
        for layer in self.layers[:-1]:
            zs.append(self.omega * layer(a))
            a = torch.tanh(zs[-1])
        y = self.omega * self.layers[-1](a)
        zbar = self.back * self.layers[-1].weight.expand(len(x), -1)
        for layer, z in zip(reversed(self.layers[:-1]), reversed(zs), strict=True):
            zbar = self.back * (zbar * self.derivative(z)) @ layer.weight
        return y, zbar


def right(z):
    return 1 - torch.tanh(z) ** 2


def one(z):
    return torch.ones_like(z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_twin_gives_no_finding(dtype):
    net = Story(right).to(dtype)
    assert len(check_twin(net, torch.randn(6, 2, dtype=dtype))) == 0


def test_forgotten_omega_0_is_named_at_every_layer():
    findings = check_twin(Story(right, omega_backward=1.0), torch.randn(6, 2))
    assert {f.path for f in findings} == {"layers.0", "layers.1", "layers.2"}
    assert all(f.rule == "twin-factor" and f.cause == "scale" for f in findings)
    assert "the factor 3" in findings[0].what


def test_identity_as_derivative_is_named():
    findings = check_twin(Story(one), torch.randn(6, 2))
    assert {f.path for f in findings} == {"layers.0", "layers.1"}
    assert all(f.cause == "activation" and "Tanh" in f.what for f in findings)


def test_both_faults_of_the_story_at_once():
    findings = check_twin(Story(one, omega_backward=1.0), torch.randn(6, 2))
    assert {f.cause for f in findings} == {"scale", "activation"}
    assert len(findings) == 5


def test_one_forgotten_layer_is_told_from_the_others():
    class Once(Story):
        def forward(self, x):
            z1 = self.layers[0](x)
            z2 = self.layers[1](torch.tanh(z1))
            y = self.layers[2](torch.tanh(z2))
            zbar = (self.layers[2].weight * right(z2)) @ self.layers[1].weight
            return y, zbar @ self.layers[0].weight

    findings = check_twin(Once(right), torch.randn(6, 2))
    assert [f.path for f in findings] == ["layers.0"]


def test_a_slightly_wrong_derivative_is_not_passed():
    class Off(Story):
        def forward(self, x):
            y, g = super().forward(x)
            return y, g * 1.001

    (finding,) = check_twin(Off(right), torch.randn(6, 2))
    assert finding.cause == "constant"
    assert finding.numbers["ratio"] == pytest.approx(1.001, rel=1e-5)


def test_shifted_rows_are_not_passed():
    class Shifted(Story):
        def forward(self, x):
            y, g = super().forward(x)
            return y, g.roll(1, 0)

    (finding,) = check_twin(Shifted(right), torch.randn(6, 2))
    assert finding.cause == "unexplained"


def test_backprop_as_a_call_of_its_own():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 4), nn.Linear(4, 1)

        def forward(self, x):
            self.z = self.a(x)
            return self.b(torch.tanh(self.z)).squeeze(-1)

        def backprop(self):
            return (self.b.weight * self.z) @ self.a.weight

    net = Apart()
    assert check_twin(net, torch.randn(5, 2), backprop=net.backprop)[0].rule == "twin-factor"


def test_nothing_of_the_model_is_changed():
    net = Story(right, omega_backward=1.0)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    x = torch.randn(6, 2)
    check_twin(net, x)
    assert all(torch.equal(before[n], p) for n, p in net.named_parameters())
    assert all(p.grad is None for p in net.parameters())
    assert not x.requires_grad


def test_bad_models_are_refused():
    with pytest.raises(InputError, match=r"expected model\(x\) to give \(y, dydx\)"):
        check_twin(nn.Linear(2, 1), torch.randn(4, 2))
    net = nn.Linear(2, 3)
    with pytest.raises(ShapeError, match="one output a row"):
        check_twin(net, torch.randn(4, 2), backprop=lambda: torch.zeros(4, 2))
    with pytest.raises(ShapeError, match="dydx of shape"):
        check_twin(nn.Linear(2, 1), torch.randn(4, 2), backprop=lambda: torch.zeros(2))
