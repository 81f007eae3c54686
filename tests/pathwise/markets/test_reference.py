"""Every market against answers that are not ours, and every derivative against its own path."""

import pytest
import torch

from pullback.derivatives import gradient_by_differences
from pullback.pathwise import pathwise
from tests.pathwise.markets.cases import CASES, Case

EXACT = [case for case in CASES if case.exact is not None]
LABELLED = [case for case in CASES if case.paths]
# A likelihood ratio is the derivative of a mean, not of a path.
OF_PATHS = [c for c in LABELLED if getattr(c.market, "labels", "") != "likelihood-ratio"]
STANDARD_ERRORS = 3.5


def _ids(cases):
    return [case.name for case in cases]


@pytest.mark.parametrize("case", EXACT, ids=_ids(EXACT))
def test_exact_value_and_gradient(case: Case):
    state = case.states()
    scale = float(case.column(case.price).abs().max())

    value = case.market.exact_value(state)

    assert (value - case.column(case.price)).abs().max() <= case.exact * max(1.0, scale)
    for column, expected in _greeks(case, case.market.exact_gradient(state)):
        assert (column - expected).abs().max() <= case.exact * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("case", LABELLED, ids=_ids(LABELLED))
def test_mean_labels_are_the_reference_within_standard_errors(case: Case):
    y, dydx = _simulated(case)

    assert _worst_score(y, case.column(case.price)) < STANDARD_ERRORS
    for labels, expected in _greeks(case, dydx):
        assert _worst_score(labels, expected) < STANDARD_ERRORS


def test_the_comparison_sees_an_error_of_two_per_cent():
    case = next(case for case in CASES if case.name == "basket-5")
    _, dydx = _simulated(case)
    scores = [_worst_score(1.02 * g, expected) for g, expected in _greeks(case, dydx)]
    assert max(scores) > STANDARD_ERRORS


@pytest.mark.parametrize("case", OF_PATHS, ids=_ids(OF_PATHS))
def test_each_differential_is_the_difference_of_its_own_path(case: Case):
    states = {name: part[:8].repeat_interleave(8, 0) for name, part in case.states().items()}
    n = len(next(iter(states.values())))
    noise = torch.randn(n, *case.market.noise, dtype=torch.float64)
    dydx = pathwise(case.market.payoff, states, noise, check_labels=False, unconnected="zero").dydx[
        :, 0
    ]

    differences, smooth = _differences(case, states, noise)

    assert smooth.double().mean() > 0.5, "hardly a row is smooth: nothing is compared"
    scale = dydx.abs().amax(0).clamp(min=1.0)
    assert ((differences - dydx).abs() / scale)[smooth].max() < 1e-6


def _differences(case, states, noise):
    """Central differences, and the rows where two steps agree: no kink or condition in between."""
    sizes = [part.shape[1:].numel() for part in states.values()]
    x = torch.cat([part.reshape(len(part), -1) for part in states.values()], dim=1)

    def f(x):
        parts = x.split(sizes, dim=1)
        shaped = [p.reshape(s.shape) for p, s in zip(parts, states.values(), strict=True)]
        return case.market.payoff(dict(zip(states, shaped, strict=True)), noise)

    unit = x.abs().amax(0).clamp(min=1e-3)

    def along(u):
        return f(u * unit)

    fine, coarse = (gradient_by_differences(along, x / unit, step=h) / unit for h in (1e-5, 2e-5))
    scale = fine.abs().amax(0).clamp(min=1.0)
    # Truncation is h²: two steps that are h² apart say that the third derivative is all there is.
    return (4.0 * fine - coarse) / 3.0, ((fine - coarse).abs() / scale < 1e-5)


def _simulated(case: Case):
    """Labels of `paths` paths a row: y [rows, paths], dydx [rows, paths, D]."""
    states = {name: part.repeat_interleave(case.paths, 0) for name, part in case.states().items()}
    labels = pathwise(
        case.market.payoff,
        states,
        case.market.noise,
        seed=5,
        check_labels=False,
        unconnected="zero",
    )
    rows = len(labels) // case.paths
    return labels.y.reshape(rows, case.paths), labels.dydx.reshape(rows, case.paths, -1)


def _greeks(case: Case, dydx):
    """Each derivative beside its reference."""
    columns = []
    for name, part in case.state.items():
        columns += [name] if isinstance(part, str) else [f"{name}{i + 1}" for i in range(len(part))]
    for column, name in case.greeks.items():
        yield dydx[..., columns.index(column)], case.column(name)


def _worst_score(labels, expected):
    """Standard errors between mean labels [rows, paths] and the reference."""
    error = labels.std(1) / labels.shape[1] ** 0.5
    known = error > 1e-9 * labels.abs().amax(1).clamp(min=1e-12)
    assert known.any()
    return float(((labels.mean(1) - expected).abs() / error)[known].max())
