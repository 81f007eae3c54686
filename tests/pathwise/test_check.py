"""The label check: right verdicts, a table of them, and no false alarm on what is smooth."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from numpy.random import RandomState

from pullback.pathwise import (
    LogNormal,
    Uniform,
    check_pathwise,
    likelihood_ratio,
    lognormal_log_density,
    safe_sqrt,
    soft_step,
    value_hard_derivative_soft,
)
from pullback.pathwise.check.evidence import tail_share
from pullback.pathwise.check.jumps import find_jumps
from pullback.pathwise.markets import (
    AsianCall,
    BachelierBasket,
    BasketCall,
    BermudanPut,
    BlackScholesCall,
    DigitalCall,
    HestonCall,
    TwoAssetCall,
    UpAndOutCall,
    WorstOfAutocall,
)

VOL = 0.2
SPOT = {"spot": LogNormal(1.0, 0.3)}


def end(state, noise):
    return state["spot"] * torch.exp(VOL * noise[:, 0] - 0.5 * VOL**2)


def digital(state, noise):
    return (end(state, noise) > 1.1).double() + 0.0 * state["spot"]


def cancelling(state, noise):
    """Long one digital and short another: the biases cancel in the mean over the spot."""
    s = end(state, noise)
    return (s > 0.9).double() - 1.15 * (s > 1.1).double() + 0.0 * s


def detached(state, noise):
    s = end(state, noise)
    return torch.relu(s - 1.1) + 0.5 * s.detach()


def half_scaled(state, noise):
    return torch.relu(value_hard_derivative_soft(end(state, noise), 0.5 * end(state, noise)) - 1.1)


def infinite_variance(state, noise):
    return (end(state, noise) - 1.1).abs().sqrt()


def hard_value_soft_derivative(state, noise):
    u = end(state, noise) - 1.1
    return value_hard_derivative_soft((u > 0).double(), soft_step(u, 0.1))


def likelihood(state, noise):
    s = end(state, noise)
    density = lognormal_log_density(s, state["spot"], 0.0, VOL, 1.0)
    return likelihood_ratio((s.detach() > 1.1).double(), density)


def cubic(state, noise):
    return state["spot"] ** 3 + 0.0 * noise[:, 0]


@dataclass(frozen=True)
class Verdict:
    name: str
    payoff: Any
    state: Any
    noise: Any
    faults: set[str]
    suspicions: set[str]


def _market(name, market, faults=(), suspicions=()):
    return Verdict(name, market.payoff, market.states, market.noise, set(faults), set(suspicions))


VERDICTS = [
    Verdict("digital", digital, SPOT, 1, {"jump"}, set()),
    Verdict("digitals that cancel", cancelling, SPOT, 1, {"jump"}, set()),
    Verdict("detached", detached, SPOT, 1, {"bias"}, set()),
    Verdict("half the derivative", half_scaled, SPOT, 1, {"bias"}, set()),
    Verdict("infinite variance", infinite_variance, SPOT, 1, set(), {"tail"}),
    Verdict("hard value, soft derivative", hard_value_soft_derivative, SPOT, 1, set(), set()),
    Verdict("likelihood ratio", likelihood, SPOT, 1, set(), set()),
    Verdict("no noise, strong curvature", cubic, SPOT, 1, set(), set()),
    _market("call", BlackScholesCall(vol=Uniform(0.1, 0.4))),
    _market("call spread", DigitalCall(labels="soft", width=0.02)),
    _market("soft barrier", UpAndOutCall()),
    _market("continuous barrier", UpAndOutCall(dates=0)),
    _market("hard barrier", UpAndOutCall(labels="raw"), {"jump"}),
    _market("soft autocall", WorstOfAutocall()),
    _market("hard autocall", WorstOfAutocall(labels="raw"), {"jump"}),
    _market("asian", AsianCall()),
    _market("two assets", TwoAssetCall()),
    _market("heston", HestonCall(steps=8)),
    _market(
        "heston without feller",
        HestonCall(steps=8, vol_of_variance=1.0, reversion=0.5, correlation=-0.9),
        (),
        {"jump", "tail"},
    ),
    _market("basket", BasketCall.of(BachelierBasket.random(7, RandomState(1)))),
    _market("bermudan put", BermudanPut(dates=5, policy_rows=32_768), (), {"jump"}),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("verdict", VERDICTS, ids=[v.name for v in VERDICTS])
def test_verdicts(verdict, seed):
    report = check_pathwise(verdict.payoff, verdict.state, verdict.noise, seed=seed)
    assert {f.kind for f in report.faults} == verdict.faults, report.sentences(report.faults)
    assert {f.kind for f in report.suspicions} == verdict.suspicions


def test_no_false_alarm_in_forty_seeds():
    market = BlackScholesCall(vol=Uniform(0.1, 0.4))
    soft = DigitalCall(labels="soft", width=0.02)
    for seed in range(40):
        for case in (market, soft):
            report = check_pathwise(case.payoff, case.states, 1, seed=seed, rows=2048)
            assert report.ok, report.sentences((*report.faults, *report.suspicions))


def test_it_says_which_input_by_how_much_and_what_to_do():
    market = DigitalCall(labels="raw", rate=Uniform(0.0, 0.1))
    report = check_pathwise(market.payoff, market.states, 1, outputs=["price"])
    fault, by_rate = report.faults
    assert (fault.inputs, by_rate.inputs) == ((0,), (1,))
    assert (
        "the derivative of price by spot is wrong: labels average 0, bumps of 0.03"
        in fault.sentence
    )
    assert "price jumps by 0.9" in fault.sentence
    assert "soft_step" in fault.remedy
    assert "likelihood_ratio" in fault.remedy
    # The bump's slope is the true mean delta, which the market knows.
    x = market.sample(8192, check_labels=False, unconnected="zero").x
    exact = market.exact_gradient(x)[:, 0].mean()
    assert abs(report.evidence[0].slope - exact) < 4 * report.evidence[0].error


def test_a_biased_label_is_seen_with_the_size_of_its_bias():
    report = check_pathwise(half_scaled, SPOT, 1)
    evidence = report.evidence[0]
    assert evidence.gap / evidence.slope == pytest.approx(0.5, abs=0.02)
    assert evidence.jumps.share == 0


def test_a_smaller_error_needs_more_rows():
    def off(state, noise):
        return 0.99 * value_hard_derivative_soft(end(state, noise) / 0.99, end(state, noise))

    assert {f.kind for f in check_pathwise(off, SPOT, 1).faults} == {"bias"}


def nan_root(state, noise):
    v = end(state, noise) - 1.1
    return torch.where(v > 0, v.sqrt(), 0.0)


def test_a_derivative_that_is_not_finite_is_named_with_its_path():
    report = check_pathwise(nan_root, SPOT, 1, outputs=["price"])
    (fault,) = report.faults
    assert fault.kind == "not-finite"
    assert "the derivative of price by spot is not finite in" in fault.sentence
    assert "first in row 4 (spot = 1.08119" in fault.sentence
    assert "safe_sqrt" in fault.remedy

    def mended(state, noise):
        return safe_sqrt(end(state, noise) - 1.1)

    assert check_pathwise(mended, SPOT, 1).faults == ()


def test_a_value_that_is_not_finite_is_named_with_its_path():
    def logarithm(state, noise):
        return (state["spot"] - 0.7).log()

    (fault,) = check_pathwise(logarithm, SPOT, 1).faults
    assert "y is not finite in" in fault.sentence
    assert "leaves its domain" in fault.remedy


def test_a_payoff_that_draws_itself_is_told():
    def noisy(state, noise):
        return state["spot"] * torch.randn(len(noise), dtype=noise.dtype)

    (fault,) = check_pathwise(noisy, SPOT, 1).faults
    assert fault.kind == "random"
    assert "take all random numbers from its noise argument" in fault.remedy


def test_few_given_rows_are_run_through_repeatedly():
    spot = torch.linspace(0.6, 1.6, 40, dtype=torch.float64)
    report = check_pathwise(digital, {"spot": spot}, 1)
    assert {f.kind for f in report.faults} == {"jump"}
    noise = torch.randn(40, 1, dtype=torch.float64)
    assert check_pathwise(lambda s, z: end(s, z), {"spot": spot}, noise).ok


def test_a_payoff_in_float32_is_checked_in_float32():
    weights = torch.tensor([0.5, 0.5])
    x = 1.0 + 0.3 * torch.randn(2000, 2)
    assert check_pathwise(lambda s, z: torch.relu((s + 0.2 * z) @ weights - 1), x, 2).ok
    jumps = check_pathwise(lambda s, z: ((s + 0.2 * z) @ weights > 1).float() + 0 * s[:, 0], x, 2)
    assert {f.kind for f in jumps.faults} == {"jump"}


def test_several_outputs_are_told_apart():
    def both(state, noise):
        return torch.stack([torch.relu(end(state, noise) - 1.1), digital(state, noise)], dim=1)

    report = check_pathwise(both, SPOT, 1, outputs=["call", "digital"])
    assert [f.output for f in report.faults] == [1]
    assert "digital by spot" in report.faults[0].sentence


def test_jumps_are_found_where_they_are():
    x = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)

    def label(rows, column):
        # A steep slope against a small jump: the change alone would mislead.
        return torch.where(column > 0.5, 3.0, 1.0) - 50.0 * column, torch.full_like(column, -50.0)

    def kink(rows, column):
        return (column - 0.5).abs(), (column - 0.5).sign()

    jumps = find_jumps(label, x, 0.055, torch.ones_like(x), spread=1.0)
    assert jumps.size == pytest.approx(2.0)
    assert jumps.at == pytest.approx(0.5)
    assert jumps.share == pytest.approx(11 / 101)
    assert find_jumps(kink, x, 0.055, torch.ones_like(x), spread=1.0).share == 0


def test_the_tail_of_a_normal_is_thin_and_that_of_a_cauchy_is_not():
    normal = torch.randn(8192, dtype=torch.float64)
    share, limit = tail_share(normal)
    assert share < limit / 10
    share, limit = tail_share(normal / torch.randn(8192, dtype=torch.float64))
    assert share > limit
    assert tail_share(torch.zeros(10)) == (0.0, 1.0)
