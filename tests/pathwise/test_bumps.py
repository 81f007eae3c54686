"""Labels from a black box: right, with a step that suits the pricer's accuracy."""

import numpy as np
import pytest
import torch

from pullback.errors import InputError, ShapeError
from pullback.pathwise import label_by_bumps
from pullback.pathwise.markets import BlackScholesCall

MARKET = BlackScholesCall()
STATE = {
    "spot": np.linspace(0.7, 1.5, 50),
    "vol": np.linspace(0.1, 0.4, 50),
    "rate": np.full(50, 0.02),
}


def exact(**columns):
    return MARKET.exact_value(
        {k: torch.from_numpy(np.array(v)) for k, v in columns.items()}
    ).numpy()


def exact_gradient(columns):
    return MARKET.exact_gradient({k: torch.from_numpy(v) for k, v in columns.items()})


def test_a_closed_form_is_differentiated_to_ten_digits():
    labels = label_by_bumps(exact, STATE, outputs=["price"])
    assert labels.columns.derivatives == ("dprice/dspot", "dprice/dvol", "dprice/drate")
    torch.testing.assert_close(labels.dydx[:, 0], exact_gradient(STATE), atol=1e-8, rtol=0)
    torch.testing.assert_close(labels.y[:, 0].numpy(), exact(**STATE))


@pytest.mark.parametrize("accuracy", [1e-9, 1e-6])
def test_the_step_follows_the_accuracy(accuracy):
    """The noise of an engine is amplified as little as its curvature allows."""
    rng = np.random.default_rng(0)

    def engine(**columns):
        y = exact(**columns)
        return y * (1 + accuracy * rng.standard_normal(y.shape))

    truth = exact_gradient(STATE)

    def error(**options):
        labels = label_by_bumps(engine, STATE, **options)
        return float((labels.dydx[:, 0] - truth).abs().max())

    informed = error(accuracy=accuracy)
    assert informed < 40 * accuracy ** (2 / 3)
    assert error() > 10 * informed, "a bump for a closed form only shows the engine's noise"


def test_one_row_at_a_time():
    def one(spot, vol, rate):
        assert np.ndim(spot) == 0
        return exact(spot=[spot], vol=[vol], rate=[rate])[0]

    rows = label_by_bumps(one, STATE, each_row=True)
    torch.testing.assert_close(rows.dydx, label_by_bumps(exact, STATE).dydx)


def test_what_is_not_bumped_is_unknown():
    labels = label_by_bumps(exact, STATE, wrt=["vol"])
    assert labels.dydx[:, 0, [0, 2]].isnan().all()
    assert labels.dydx[:, 0, 1].isfinite().all()


def test_an_array_without_names_and_several_outputs():
    x = np.random.default_rng(0).normal(size=(20, 3))
    labels = label_by_bumps(lambda x: np.stack([x.sum(1), (x**2).sum(1)], 1), x)
    assert labels.columns.outputs == ("y0", "y1")
    expected = np.stack([np.ones_like(x), 2 * x], 1)
    torch.testing.assert_close(labels.dydx, torch.from_numpy(expected), atol=1e-8, rtol=0)
    rows = label_by_bumps(lambda x: [x.sum(), (x**2).sum()], x, each_row=True)
    torch.testing.assert_close(rows.dydx, labels.dydx)


def test_a_step_may_be_given():
    labels = label_by_bumps(lambda x: x**3, {"x": np.array([1.0, 2.0])}, step={"x": 0.1})
    # (x + h)³ - (x - h)³ over 2h is 3x² + h².
    np.testing.assert_allclose(labels.dydx[:, 0, 0], [3.01, 12.01])


@pytest.mark.parametrize(
    ("price", "state", "options", "error", "words"),
    [
        (exact, {"spot": np.ones((2, 2))}, {}, ShapeError, r"arrays \[N\], got {'spot': \[2, 2\]}"),
        (exact, np.ones(3), {}, ShapeError, r"a state \[N, D\], got \[3\]"),
        (lambda x: 1.0, {"x": np.ones(3)}, {}, ShapeError, "each_row=True calls it once a row"),
        (exact, STATE, {"accuracy": 0}, InputError, "accuracy between 0 and 1, got 0"),
        (exact, STATE, {"step": -1.0}, InputError, "positive step for spot, got -1"),
        (exact, STATE, {"wrt": ["strike"]}, InputError, "got 'strike'"),
        (exact, STATE, {"step": {"strike": 1.0}}, InputError, "got 'strike'"),
    ],
)
def test_what_is_refused_is_told(price, state, options, error, words):
    with pytest.raises(error, match=words):
        label_by_bumps(price, state, **options)
