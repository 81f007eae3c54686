"""The engineering problems: public data, with the splits and networks of published tables.

Letters A to K are those of the tables in README.md. Every problem is a function of nothing, so that
a run makes only what it needs; seeds are fixed, so that two runs see the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows with values and derivatives: x [N, D], y [N, K], dydx [N, K, D]."""

    x: Array
    y: Array
    dydx: Array

    def take(self, rows: Any) -> "Rows":
        """Some of the rows."""
        return Rows(self.x[rows], self.y[rows], self.dydx[rows])


@dataclass(frozen=True)
class Problem:
    """Training and test rows, and the hidden widths that every network is given."""

    title: str
    train: Rows
    test: Rows
    hidden: tuple[int, ...]


def sinusoid() -> Problem:
    from jenn.synthetic_data import sinusoid

    train = _jenn_sample(sinusoid, levels=4, bounds=(-3.14, 3.14), dim=1)
    test = _jenn_sample(sinusoid, random=30, bounds=(-3.14, 3.14), dim=1, seed=7)
    return Problem("A sinusoid, 4 points", train, test, (12,))


def rastrigin() -> Problem:
    from jenn.synthetic_data import rastrigin

    train = _jenn_sample(rastrigin, random=100, bounds=(-1.0, 1.5), dim=2, seed=7)
    test = _jenn_sample(rastrigin, levels=10, bounds=(-1.0, 1.5), dim=2)
    return Problem("B Rastrigin, 100 points", train, test, (24, 24))


def rosenbrock() -> Problem:
    from jenn.synthetic_data import rosenbrock

    train = _jenn_sample(rosenbrock, random=100, levels=17, bounds=(-2.0, 2.0), dim=2, seed=1)
    test = _jenn_sample(rosenbrock, random=1_000, bounds=(-2.0, 2.0), dim=2, seed=2)
    return Problem("C Rosenbrock, 389 points", train, test, (20, 20, 20))


def airfoil(hidden: tuple[int, ...] = (12, 12)) -> Problem:
    rows = airfoil_rows()
    order = np.random.default_rng(0).permutation(len(rows.x))
    held = len(rows.x) // 5
    title = f"D airfoil 16-{'-'.join(map(str, hidden))}-1"
    return Problem(title, rows.take(order[held:]), rows.take(order[:held]), hidden)


def airfoil_wide() -> Problem:
    return airfoil((64, 64))


def b777() -> Problem:
    from smt.examples.b777_engine.b777_engine import get_b777_engine

    x, y, dydx, _ = get_b777_engine()
    rows = Rows(x, y, dydx)
    order = np.random.default_rng(0).permutation(len(x))
    return Problem("E B777 engine", rows.take(order[211:]), rows.take(order[:211]), (24, 24))


def wing_weight() -> Problem:
    from smt.problems import WingWeight

    return _latin_hypercube("I WingWeight", WingWeight(ndim=10), 50)


def robot_arm() -> Problem:
    from smt.problems import RobotArm

    return _latin_hypercube("J RobotArm", RobotArm(ndim=8), 160)


def water_flow() -> Problem:
    from smt.problems import WaterFlow

    return _latin_hypercube("K WaterFlow", WaterFlow(ndim=8), 80)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "sinusoid": sinusoid,
    "rastrigin": rastrigin,
    "rosenbrock": rosenbrock,
    "airfoil": airfoil,
    "airfoil-wide": airfoil_wide,
    "b777": b777,
    "wing-weight": wing_weight,
    "robot-arm": robot_arm,
    "water-flow": water_flow,
}


def airfoil_rows() -> Rows:
    """CFD drag of 42,039 airfoils in 16 shape and flow parameters, with adjoint derivatives.

    Source: Bouhlel, He, Martins 2019, doi 10.17632/ngpd634smf.1, as installed with smt.
    """
    from smt.examples.airfoil_parameters.learning_airfoil_parameters import load_cd_training_data

    x, y, dydx = (part.astype(np.float64) for part in load_cd_training_data())
    return Rows(x, y[:, None], dydx[:, None, :])


def _jenn_sample(
    function: Any,
    *,
    bounds: tuple[float, float],
    dim: int,
    random: int = 0,
    levels: int = 0,
    seed: int | None = None,
) -> Rows:
    """Rows of a jenn test function, which keeps rows in the last axis."""
    from jenn.utilities import sample

    x, y, dydx = sample(
        function.compute, random, levels, [bounds[0]] * dim, [bounds[1]] * dim,
        f_prime=function.compute_partials, random_state=seed,
    )  # fmt: skip
    return Rows(x.T, y.T, dydx.transpose(2, 0, 1))


def _latin_hypercube(title: str, function: Any, rows: int) -> Problem:
    from smt.sampling_methods import LHS

    def draw(count: int, seed: int) -> Rows:
        design = LHS(xlimits=function.xlimits, criterion="m", seed=seed)
        x = design(count)
        slopes = [function(x, kx=j)[:, 0] for j in range(x.shape[1])]
        return Rows(x, function(x), np.stack(slopes, axis=1)[:, None, :])

    return Problem(f"{title}, {rows} points", draw(rows, 0), draw(500, 100), (24, 24))
