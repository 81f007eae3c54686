"""A surrogate of an engine that knows some derivatives: fit with those, predict the rest.

QuantLib's finite-difference engine gives an American put with delta and theta, and no vega. NaN
says that a derivative is unknown: the network learns value, delta and theta, and its vega follows
from the values. It is then held against vega by bumping the engine, which costs two more runs a
state.

    pip install QuantLib
    python examples/quantlib_partial_labels.py
"""

import argparse
import math

import numpy as np
import QuantLib as ql

import pullback as pb
from pullback.pathwise import label_by_bumps

INPUTS = ("spot", "vol", "maturity")
STRIKE, RATE = 100.0, 0.05
_TODAY = ql.Date(2, 1, 2026)
_DAYS = ql.Actual365Fixed()


def american_put(spot: float, vol: float, maturity: float) -> tuple[float, float, float]:
    """Value, delta and theta (a year) by finite differences."""
    ql.Settings.instance().evaluationDate = _TODAY
    process = ql.BlackScholesProcess(
        ql.QuoteHandle(ql.SimpleQuote(spot)),
        ql.YieldTermStructureHandle(ql.FlatForward(_TODAY, RATE, _DAYS)),
        ql.BlackVolTermStructureHandle(ql.BlackConstantVol(_TODAY, ql.NullCalendar(), vol, _DAYS)),
    )
    last = _TODAY + round(365 * maturity)
    option = ql.VanillaOption(
        ql.PlainVanillaPayoff(ql.Option.Put, STRIKE), ql.AmericanExercise(_TODAY, last)
    )
    option.setPricingEngine(ql.FdBlackScholesVanillaEngine(process, 100, 200))
    return option.NPV(), option.delta(), option.theta()


def states(rows: int, seed: int) -> np.ndarray:
    """Spots, volatilities and maturities, [rows, 3]; maturities are whole days."""
    u = np.random.default_rng(seed).uniform(size=(rows, 3))
    x = np.array([70.0, 0.15, 0.25]) + u * np.array([70.0, 0.25, 1.25])
    x[:, 2] = np.round(365 * x[:, 2]) / 365
    return x


def partial_labels(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values, and derivatives by spot and maturity; vega is unknown."""
    value, delta, theta = np.array([american_put(*row) for row in x]).T
    # Value by time to maturity is minus theta, which is by calendar time.
    return value, np.stack([delta, np.full(len(x), math.nan), -theta], axis=1)


def bumped_vega(x: np.ndarray) -> np.ndarray:
    """What the engine would say of vega if it were bumped."""
    labels = label_by_bumps(
        lambda **state: american_put(**state)[0],
        dict(zip(INPUTS, x.T, strict=True)),
        accuracy=1e-6,
        wrt=["vol"],
        each_row=True,
    )
    return labels.dydx[:, 0, 1].numpy()


def compare(
    rows: int = 400, tests: int = 150, seed: int = 0, epochs: int | None = None
) -> dict[str, dict[str, float]]:
    """Root mean squared errors of value, delta and vega on fresh states, by labels given."""
    x, test = states(rows, seed), states(tests, seed + 1)
    value, dydx = partial_labels(x)
    truth, slopes = partial_labels(test)
    vega = bumped_vega(test)
    errors = {}
    for name, labels in (("values only", None), ("with delta and theta", dydx)):
        # The engine's labels hold no noise: a second-order optimizer can follow them to the end.
        model = pb.DifferentialRegressor(
            optimizer="lbfgs", epochs=epochs, random_state=seed, progress=False
        )
        model.fit(x, value, labels, columns=pb.Columns(INPUTS, ("value",)))
        predicted, gradient = model.predict(test, return_gradient=True)
        errors[name] = {
            "value": _rmse(predicted, truth),
            "delta": _rmse(gradient[:, 0], slopes[:, 0]),
            "vega": _rmse(gradient[:, 1], vega),
        }
    return errors


def _rmse(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400)
    arguments = parser.parse_args()
    for name, errors in compare(arguments.rows).items():
        print(name, ", ".join(f"{key} {error:.3f}" for key, error in errors.items()))
