"""A model with a known answer, for reports: y = x·w + bend·x0², seen with a chosen error."""

from types import SimpleNamespace

import numpy as np

from pullback.learning.columns import Columns


class Known:
    """Looks like a fitted regressor; its errors are known in closed form.

    Values are too large by `shift`, derivatives by the factor `slope`.
    """

    def __init__(self, columns, weights, *, bend=0.0, shift=0.0, slope=1.0, reach=2.0):
        self.columns_ = columns
        self.weights = np.asarray(weights, float)  # [K, D]
        self.bend, self.shift, self.slope = bend, shift, slope
        inputs = len(columns.inputs)
        self.domain_ = SimpleNamespace(
            lower=np.full(inputs, -reach),
            upper=np.full(inputs, reach),
            outside=lambda x: (np.abs(x) > reach).any(1),
            distance=lambda x: np.linalg.norm(x, axis=1),
        )
        self.history_ = SimpleNamespace(
            optimizer="adam",
            seconds=1.5,
            events=["adam: it was asked for"],
            epochs=[1, 2, 3],
            train={"value": [1.0, 0.1, 0.01], "derivative": [2.0, 0.2, 0.02], "total": [3, 0.3, 0]},
            validation={"value": [1.0, 0.2, 0.05]},
        )

    def get_params(self, deep=True):
        return {"hidden": (4, 4), "learning_rate": None}

    def exact(self, x):
        """Values [N, K] and derivatives [N, K, D]."""
        y = x @ self.weights.T + self.bend * x[:, :1] ** 2
        dydx = np.repeat(self.weights[None], len(x), axis=0)
        dydx[:, :, 0] += 2.0 * self.bend * x[:, :1]
        return y, dydx

    def predict(self, X, return_gradient=False):
        y, dydx = self.exact(X)
        y, dydx = y + self.shift, dydx * self.slope
        if len(self.columns_.outputs) == 1:
            y, dydx = y[:, 0], dydx[:, 0]
        return (y, dydx) if return_gradient else y


def known(inputs=2, outputs=1, **more):
    """A model of any size, with names that HTML must escape."""
    names = ("spot<A>", "vol&B", *(f"x{d}" for d in range(2, inputs)))[:inputs]
    columns = Columns(names, ("price",) if outputs == 1 else ("price", "fee"), {"price": "USD"})
    weights = np.random.default_rng(1).normal(size=(outputs, inputs))
    return Known(columns, weights, **{"bend": 0.5, **more})


def rows(count, inputs=2, seed=0):
    return np.random.default_rng(seed).normal(size=(count, inputs))
