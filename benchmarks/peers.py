"""The other packages, called as their users call them: jenn, and SMT's GENN and GEKPLS.

Each returns predictions of values [N, K] and derivatives [N, K, D] on the test rows. Settings are
those of the published comparison in README.md.
"""

import contextlib
import os
from typing import Any

import numpy as np

from benchmarks.problems import Array, Problem

Predictions = tuple[Array, Array]


def jenn(problem: Problem, seed: int, *, derivatives: bool = True, **options: Any) -> Predictions:
    """A jenn network; it keeps rows in the last axis."""
    from jenn import NeuralNet

    train, test = problem.train, problem.test
    widths = [train.x.shape[1], *problem.hidden, train.y.shape[1]]
    slopes = train.dydx.transpose(1, 2, 0) if derivatives else None
    net = NeuralNet(widths).fit(train.x.T, train.y.T, slopes, random_state=seed, **options)
    y, dydx = net(test.x.T)
    return y.T, dydx.transpose(2, 0, 1)


def genn(problem: Problem, seed: int, **options: Any) -> Predictions:
    """SMT's GENN, which is jenn behind SMT's interface."""
    from smt.surrogate_models import GENN

    model = GENN(print_global=False, hidden_layer_sizes=list(problem.hidden), seed=seed, **options)
    return _smt(model, problem)


def gekpls(problem: Problem, seed: int, **options: Any) -> Predictions:
    """SMT's gradient-enhanced kriging on partial least squares; it has no seed."""
    from smt.surrogate_models import GEKPLS

    return _smt(GEKPLS(print_global=False, **options), problem)


def _smt(model: Any, problem: Problem) -> Predictions:
    train, test = problem.train, problem.test
    model.set_training_values(train.x, train.y)
    for j in range(train.x.shape[1]):
        model.set_training_derivatives(train.x, train.dydx[:, 0, j, None], j)
    # It prints its optimizer's warnings whatever print_global says.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        model.train()
        y = model.predict_values(test.x)
        slopes = [model.predict_derivatives(test.x, j)[:, 0] for j in range(test.x.shape[1])]
    return y, np.stack(slopes, axis=1)[:, None, :]
