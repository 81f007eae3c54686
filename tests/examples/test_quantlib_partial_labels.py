"""The QuantLib example: unknown vega is predicted, and known Greeks make it better."""

import warnings

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    # SWIG's types lack a __module__, of which CPython warns at import.
    warnings.simplefilter("ignore", DeprecationWarning)
    pytest.importorskip("QuantLib", reason="QuantLib is a development dependency")

from examples.quantlib_partial_labels import bumped_vega, compare, partial_labels, states

from pullback.pathwise.markets import BermudanPut


def test_vega_is_unknown_and_the_rest_is_the_engines():
    x = states(5, seed=3)
    value, dydx = partial_labels(x)
    assert np.isnan(dydx[:, 1]).all()
    assert np.isfinite(dydx[:, [0, 2]]).all()
    # A put of fifty dates is nearly American: the engine's delta is ours.
    for row, v, slopes in zip(x, value, dydx, strict=True):
        put = BermudanPut(vol=row[1], maturity=row[2], dates=50)
        spot = torch.tensor([[row[0]]], dtype=torch.float64)
        held = float(put.exact_value(spot))
        assert max(held, 100.0 - row[0]) == pytest.approx(v, abs=0.05)
        if held > 100.0 - row[0]:
            assert float(put.exact_gradient(spot)) == pytest.approx(slopes[0], abs=0.01)


def test_known_greeks_improve_all_errors():
    errors = compare(rows=100, tests=60, epochs=300)
    plain, partial = errors["values only"], errors["with delta and theta"]
    assert partial["value"] < plain["value"]
    assert partial["delta"] < plain["delta"]
    assert partial["vega"] < plain["vega"]
    assert partial["vega"] < 0.2 * np.std(bumped_vega(states(60, seed=1)))
