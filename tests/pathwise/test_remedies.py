"""Remedies: their values, their derivatives, and both at, below and above the singular point."""

import math

import pytest
import torch

from pullback.errors import InputError
from pullback.pathwise import (
    likelihood_ratio,
    lognormal_log_density,
    normal_log_density,
    normal_vector_log_density,
    safe_sqrt,
    soft_step,
    value_hard_derivative_soft,
)
from pullback.pathwise.markets import DigitalCall


def gradient(f, u):
    leaf = u.clone().requires_grad_()
    y = f(leaf)
    return y.detach(), torch.autograd.grad(y.sum(), leaf)[0]


def test_soft_step_is_a_ramp():
    u = torch.tensor([-0.06, -0.04, 0.0, 0.04, 0.06], dtype=torch.float64)
    y, slope = gradient(lambda u: soft_step(u, 0.1), u)
    expected = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(slope, torch.tensor([0.0, 10, 10, 10, 0], dtype=torch.float64))
    with pytest.raises(InputError, match="positive width, got 0"):
        soft_step(u, 0)


def test_a_soft_step_is_off_by_what_its_docstring_says():
    x = torch.tensor([[1.0]], dtype=torch.float64)
    exact = float(DigitalCall().exact_value(x))
    for width, bias in ((0.05, 0.0006), (0.1, 0.0022), (0.2, 0.0088)):
        soft = float(DigitalCall(labels="soft", width=width).exact_value(x))
        assert soft - exact == pytest.approx(bias, abs=5e-5)


def test_value_hard_derivative_soft_takes_one_of_each():
    u = torch.tensor([-0.2, -0.01, 0.0, 0.01, 0.2], dtype=torch.float64)

    def step(u):
        return value_hard_derivative_soft((u > 0).double(), soft_step(u, 0.1))

    y, slope = gradient(step, u)
    assert torch.equal(y, (u > 0).double())
    torch.testing.assert_close(slope, torch.tensor([0.0, 10, 10, 10, 0], dtype=torch.float64))
    large = value_hard_derivative_soft(torch.tensor([0.1]), torch.tensor([1e30]))
    assert torch.equal(large, torch.tensor([0.1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_safe_sqrt_at_and_around_zero(dtype):
    tiny = torch.finfo(dtype).tiny
    v = torch.tensor([-1.0, -tiny, 0.0, tiny, 4.0], dtype=dtype)
    y, slope = gradient(safe_sqrt, v)
    assert torch.equal(y, v.clamp(min=0).sqrt())
    assert torch.equal(slope[:3], torch.zeros(3, dtype=dtype))
    torch.testing.assert_close(slope[3:], 0.5 / v[3:].sqrt())


def test_a_likelihood_ratio_is_unbiased_where_a_pathwise_derivative_is_zero():
    generator = torch.Generator().manual_seed(0)
    n = 200_000
    x = torch.full((n,), 0.3, dtype=torch.float64)
    z = torch.randn(n, generator=generator, dtype=torch.float64)

    def payoff(x):
        s = (x + z).detach()
        return likelihood_ratio((s > 0).double(), normal_log_density(s, x, 1.0))

    y, slope = gradient(payoff, x)
    exact = math.exp(-0.5 * 0.3**2) / math.sqrt(2 * math.pi)  # d/dx N(x)
    assert torch.equal(y, ((x + z) > 0).double())
    assert abs(float(slope.mean()) - exact) < 3.5 * float(slope.std()) / n**0.5


def test_log_densities_are_those_of_torch():
    s = torch.rand(7, dtype=torch.float64) + 0.5
    mean, deviation = torch.tensor(0.2, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    normal = torch.distributions.Normal(mean, deviation)
    torch.testing.assert_close(normal_log_density(s, mean, deviation), normal.log_prob(s))

    spot, drift, vol, dt = (torch.tensor(v, dtype=torch.float64) for v in (1.1, 0.03, 0.3, 0.5))
    lognormal = torch.distributions.LogNormal(
        spot.log() + (drift - 0.5 * vol**2) * dt, vol * dt.sqrt()
    )
    ours = lognormal_log_density(s, spot, drift, vol, dt)
    torch.testing.assert_close(ours - s.log(), lognormal.log_prob(s))

    factor = torch.tensor([[1.0, 0.0], [0.5, 0.8]], dtype=torch.float64)
    draws = torch.randn(5, 2, dtype=torch.float64)
    vector = torch.distributions.MultivariateNormal(torch.zeros(2).double(), scale_tril=factor)
    zero = torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(
        normal_vector_log_density(draws, zero, factor), vector.log_prob(draws)
    )
    each = factor.expand(5, 2, 2)
    torch.testing.assert_close(normal_vector_log_density(draws, zero, each), vector.log_prob(draws))


def test_a_density_holds_the_draw_fixed():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    s = 2.0 * x
    normal_log_density(s, torch.zeros(3, dtype=torch.float64) + 0 * x, 1.0).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
