"""What all markets share, and the answers that have no file, or none to 1e-10."""

import numpy as np
import pytest
import torch

from pullback.errors import InputError, ShapeError
from pullback.pathwise import LogNormal, NormalVector, Uniform, pathwise
from pullback.pathwise.markets import (
    MARKETS,
    BachelierBasket,
    BasketCall,
    BermudanPut,
    BlackScholesCall,
    DigitalCall,
    HestonCall,
    UpAndOutCall,
    WorstOfAutocall,
    reference_problem,
)
from tests.pathwise.markets.cases import Case


@pytest.mark.parametrize("name", list(MARKETS))
def test_one_anatomy(name):
    small = {"policy_rows": 4096} if name.startswith("bermudan") else {}
    market = MARKETS[name](**small)
    labels = market.sample(16, check_labels=False, unconnected="zero")
    assert labels.columns.inputs == market.inputs
    if name != "autocall":  # its engine is slow, and tested below
        assert market.exact_value(labels.x).shape == (16,)
        assert market.exact_gradient(labels.x).shape == labels.x.shape


def test_a_distribution_makes_an_input_and_a_number_does_not():
    market = BlackScholesCall(spot=1.0, vol=Uniform(0.1, 0.4))
    assert market.inputs == ("vol",)
    x = torch.tensor([[0.2]], dtype=torch.float64)
    given = {"vol": x[:, 0], "spot": torch.ones(1, dtype=torch.float64)}
    assert torch.equal(market.exact_value(x), market.exact_value(given))
    changed = market.changed(strike=0.9)
    assert changed.strike == 0.9
    assert market.strike == 1.1


def test_a_state_that_does_not_fit_is_told():
    market = BlackScholesCall()
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(InputError, match="expected a state with spot, and perhaps"):
        market.payoff({"vol": one}, one[:, None])
    with pytest.raises(InputError, match="got spot, colour"):
        market.payoff({"spot": one, "colour": one}, one[:, None])
    with pytest.raises(ShapeError, match=r"x \[N, D\] with the columns spot, got \[1, 2\]"):
        market.exact_value(torch.ones(1, 2))
    with pytest.raises(InputError, match="soft, soft-derivative, got 'likelihood-ratio'"):
        UpAndOutCall(labels="likelihood-ratio")
    with pytest.raises(InputError, match="labels to be one of raw"):
        DigitalCall(labels="none")


def test_distributions_refuse_what_is_none():
    with pytest.raises(InputError, match="low < high, got 1 and 1"):
        Uniform(1, 1)
    with pytest.raises(ShapeError, match=r"covariance of shape \(2, 2\)"):
        NormalVector((0.0, 0.0), torch.eye(3))


def test_distributions_have_their_moments():
    u = (torch.arange(20_000, dtype=torch.float64)[:, None] + 0.5) / 20_000
    log = LogNormal(2.0, 0.3).shaped(u).log()
    assert float(log.mean()) == pytest.approx(np.log(2.0), abs=1e-6)
    assert float(log.std()) == pytest.approx(0.3, abs=1e-3)
    covariance = torch.tensor([[0.04, 0.03], [0.03, 0.09]], dtype=torch.float64)
    points = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(8192, dtype=torch.float64)
    drawn = NormalVector((1.0, 2.0), covariance).shaped(points.clamp(1e-9, 1 - 1e-9))
    torch.testing.assert_close(drawn.T.cov(), covariance, atol=1e-3, rtol=0)


def test_many_dates_make_a_bermudan_an_american():
    """Its error is of first order in the dates: two of them extrapolate to the American price."""
    case = Case(
        "american", BermudanPut(), "american_bermudan_put.csv", {"spot": "spot"}, {},
        {"kind": "american_put", "vol": "0.2"},
    )  # fmt: skip
    state, american = case.states(), case.column("price")
    now = 100.0 - state["spot"]
    coarse, fine = (torch.maximum(BermudanPut(dates=n).exact_value(state), now) for n in (25, 50))
    assert (fine - american).abs().max() < 0.02
    assert (2 * fine - coarse - american).abs().max() < 5e-4


@pytest.mark.parametrize(
    ("market", "keep"),
    [
        (WorstOfAutocall(width=0.1), {"kind": "smoothed", "smooth_h": "0.05"}),
        (WorstOfAutocall(labels="likelihood-ratio"), {"kind": "hard"}),
    ],
)
def test_the_autocall_engine(market, keep):
    """65,536 Sobol paths; the file's own standard errors are 1e-4 in price and 2e-3 in delta."""
    spots = {"spot": ("s1", "s2", "s3", "s4")}
    case = Case("autocall", market, "autocall_worst_of.csv", spots, {}, keep, every=3)
    state = case.states()
    assert (market.exact_value(state) - case.column("price")).abs().max() < 2e-3
    deltas = torch.stack([case.column(f"delta{i}") for i in range(1, 5)], dim=1)
    assert (market.exact_gradient(state) - deltas).abs().max() < 0.015


def test_heston_labels_have_a_scheme_that_does_not_bias_where_feller_fails():
    """Of the variance's derivative too: the root of an Euler scheme has none there."""
    market = HestonCall(
        spot=100.0, variance=0.04, reversion=0.5, mean_variance=0.04, vol_of_variance=1.0,
        correlation=-0.9, rate=0.0,
    )  # fmt: skip
    n = 100_000
    given = {"spot": 100.0, "variance": 0.04}
    states = {name: torch.full((n,), v, dtype=torch.float64) for name, v in given.items()}
    labels = pathwise(market.payoff, states, market.noise, seed=3, check_labels=False)
    one = {name: part[:1] for name, part in states.items()}
    exact = market.exact_gradient(one)[0]
    error = labels.dydx[:, 0].std(0) / n**0.5
    assert ((labels.dydx[:, 0].mean(0) - exact).abs() < 3.5 * error).all()
    assert float(error[1]) < 0.2 * float(exact[1])


def test_the_reference_problem_keeps_its_numbers():
    train, test = reference_problem(7, 4, simulated=16_384)
    np.testing.assert_allclose(
        train.x[0, :3], [1.3393395925124307, 0.9823711959837217, 1.0527425539187225], rtol=1e-12
    )
    np.testing.assert_allclose(
        test.y[:3], [0.055131709178891444, 0.016501495760352626, 0.10794122643850367], rtol=1e-12
    )


def test_the_basket_is_the_notebooks():
    rng = np.random.RandomState(1)
    basket = BachelierBasket.random(3, rng)
    market = BasketCall.of(basket)
    x = basket.grid(64, rng)
    exact = basket.exact(x)
    np.testing.assert_allclose(market.exact_value(torch.from_numpy(x)), exact.y, rtol=1e-12)
    np.testing.assert_allclose(market.exact_gradient(torch.from_numpy(x)), exact.dydx, rtol=1e-12)
    sample = basket.sample(50_000, rng)
    error = sample.dydx.std(0) / 50_000**0.5
    ours = market.sample(50_000, seed=2, check_labels=False).dydx[:, 0].mean(0).numpy()
    assert (np.abs(sample.dydx.mean(0) - ours) < 3.5 * 1.5 * error).all()


@pytest.mark.parametrize(("dates", "boundary"), [(5, 86.0056616308), (10, 84.2836674949)])
def test_the_policy_of_the_put_has_the_exact_boundary(dates, boundary):
    """The file's boundary_first: two per cent off it would move a delta by five."""
    market = BermudanPut(dates=dates)
    spot = torch.linspace(70.0, 100.0, 3001, dtype=torch.float64)
    discounted = torch.exp(torch.tensor(-0.05 / dates)) * (100.0 - spot)
    exercised = spot[market.policy.decide(0, discounted, spot.log())]
    assert float(exercised.max()) == pytest.approx(boundary, rel=0.005)
    assert len(exercised) == int((spot <= exercised.max()).sum())


def test_an_exercise_that_is_held_fixed_is_unbiased_at_the_best_boundary_only():
    """Why the policy is refined: the same labels, exercised 4 % too late."""
    market = BermudanPut(dates=5)
    state = {"spot": torch.full((50_000,), 90.0, dtype=torch.float64)}

    def late(state, noise):
        exercise, log_spot = market._paths(market.at(state), noise)
        return market.policy.cash(exercise, log_spot + 0.04)

    exact = float(market.exact_gradient({"spot": state["spot"][:1]}))
    for payoff, within in ((market.payoff, True), (late, False)):
        delta = pathwise(payoff, state, market.noise, check_labels=False).dydx[:, 0, 0]
        score = abs(float(delta.mean()) - exact) / (float(delta.std()) / 50_000**0.5)
        assert (score < 3.5) == within
