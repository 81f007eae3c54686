"""The self-scaled Broyden method, against its formulas and on functions whose end is known."""

import pytest
import torch

from pullback.learning.quasi_newton import ARMIJO, CURVATURE, SelfScaledBroyden, _scaling, _update


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def valley(w):
    """Rosenbrock's function of any number of weights, and its gradient; 0 at ones."""
    w = w.detach().requires_grad_()
    loss = (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()
    return loss.item(), torch.autograd.grad(loss, w)[0]


def run(objective, start, iterations=500):
    method = SelfScaledBroyden(objective, start)
    for _ in range(iterations):
        if not method.advance(1):
            break
    return method


class TestUpdate:
    @pytest.mark.parametrize("seed", range(5))
    def test_against_the_formula_and_the_secant_equation(self, seed):
        root, s = draw(6, 6, seed=seed), draw(6, seed=seed + 10)
        inverse = root @ root.T + torch.eye(6)
        y = s + 0.3 * draw(6, seed=seed + 20)
        if s @ y <= 0:
            y = -y
        s_b_s = float(s @ torch.linalg.solve(inverse, s))
        along = float(s @ y)
        turned = inverse @ y
        y_h_y = float(y @ turned)
        tau, phi = _scaling(s_b_s / along, y_h_y / along, 6)
        v = y_h_y**0.5 * (s / along - turned / y_h_y)
        expected = inverse - torch.outer(turned, turned) / y_h_y + phi * torch.outer(v, v)
        expected = expected / tau + torch.outer(s, s) / along
        _update(inverse, s, y, along, s_b_s)

        torch.testing.assert_close(inverse, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(inverse @ y, s, rtol=1e-9, atol=1e-11)
        assert torch.linalg.eigvalsh(inverse).min() > 0

    @pytest.mark.parametrize("b", [1e-3, 0.5, 1.0, 2.0, 1e3])
    @pytest.mark.parametrize("h", [1e-3, 0.5, 1.0, 2.0, 1e3])
    def test_scales_only_down_and_stays_positive(self, b, h):
        """h b ≥ 1 by Cauchy and Schwarz; below, rounding."""
        tau, phi = _scaling(b, h, 100)

        assert 0 < tau <= 1
        assert h * b < 1 or phi * (h * b - 1) > -1  # keeps every eigenvalue above zero


class TestDescent:
    @pytest.mark.parametrize("size", [2, 10, 40])
    def test_through_a_bent_valley(self, size):
        method = run(valley, torch.full((size,), -1.2, dtype=torch.float64), 2_000)
        loss, gradient = valley(method.weights)

        assert float(gradient.norm()) < 1e-5
        assert loss < 1e-10 or size >= 4  # there is a second, local minimum from four on

    def test_a_badly_scaled_bowl(self):
        scales = torch.logspace(-4, 4, 12, dtype=torch.float64)
        method = run(lambda w: (float(0.5 * scales @ w**2), scales * w), draw(12))

        assert float(0.5 * scales @ method.weights**2) < 1e-16

    def test_every_step_satisfies_the_wolfe_conditions(self):
        seen = []

        def watched(w):
            seen.append((w.clone(), *valley(w)))
            return seen[-1][1:]

        method = SelfScaledBroyden(watched, draw(10))
        old = (method.weights, *valley(method.weights))
        for _ in range(60):
            method.advance(1)
            new = (method.weights, *valley(method.weights))
            slope, after = (float(g @ (new[0] - old[0])) for g in (old[2], new[2]))
            assert new[1] <= old[1] + ARMIJO * slope + 1e-12 * old[1]
            assert after >= CURVATURE * slope
            old = new

    def test_infinite_trials_are_too_far(self):
        def walled(w):
            value = float(w[0])
            if value <= 0:
                return float("nan"), torch.full_like(w, torch.nan)
            return value - torch.log(w[0]).item(), 1 - 1 / w

        method = run(walled, torch.tensor([30.0], dtype=torch.float64))

        assert float(method.weights[0]) == pytest.approx(1.0, abs=1e-7)

    @pytest.mark.parametrize("weights", [0.0, 3.0])
    def test_nowhere_to_go(self, weights):
        method = SelfScaledBroyden(lambda w: (1.0, 0 * w), torch.tensor([weights]))

        assert not method.advance(20)
        assert method.weights.tolist() == [weights]
