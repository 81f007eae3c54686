"""Drag of airfoils with all 16 adjoint derivatives: a surrogate of CFD from the installed smt data.

42,039 airfoils described by 14 shape modes, Mach number and angle of attack; the drag coefficient
and its derivative in each of the 16, from an adjoint solver. One fifth is held out. Trained twice,
on values only and on values with derivatives, with the same network and the same settings.

    pip install smt
    python examples/airfoil.py [--rows 42039] [--epochs 100]

Data: Bouhlel, He, Martins, Mendeley Data 2019, doi 10.17632/ngpd634smf.1, read from the installed
package.
"""

import argparse
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import r2_score
from smt.examples.airfoil_parameters.learning_airfoil_parameters import load_cd_training_data

import pullback as pb

INPUTS = (*(f"mode {i}" for i in range(1, 15)), "Mach", "angle")


class Rows(NamedTuple):
    """Inputs x [N, 16], drag y [N], derivatives dydx [N, 16]."""

    x: np.ndarray
    y: np.ndarray
    dydx: np.ndarray


def split(rows: int, seed: int = 0) -> tuple[Rows, Rows]:
    """Training and test rows of a random choice; one fifth is for the test."""
    x, y, dydx = (part.astype(np.float64) for part in load_cd_training_data())
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    test, train = np.split(chosen, [len(chosen) // 5])
    return Rows(x[train], y[train], dydx[train]), Rows(x[test], y[test], dydx[test])


def fit(train: Rows, *, derivatives: bool, epochs: int | None) -> pb.DifferentialRegressor:
    """A network on values only, or on both."""
    model = pb.DifferentialRegressor(
        hidden=(64, 64), optimizer="adam", learning_rate=0.03, epochs=epochs, random_state=0
    )
    return model.fit(train.x, train.y, train.dydx if derivatives else None)


def scores(model: pb.DifferentialRegressor, test: Rows) -> dict[str, float]:
    """R² of the drag and of each derivative on rows that were held out."""
    y, dydx = model.predict(test.x, return_gradient=True)
    derivatives = r2_score(test.dydx, dydx, multioutput="raw_values")
    names = (f"∂drag/∂{name}" for name in INPUTS)
    return {"drag": r2_score(test.y, y), **dict(zip(names, map(float, derivatives), strict=True))}


def compare(rows: int, epochs: int | None) -> dict[str, dict[str, float]]:
    """Scores of both networks."""
    train, test = split(rows)
    arms = {"values only": False, "with derivatives": True}
    return {
        name: scores(fit(train, derivatives=derivatives, epochs=epochs), test)
        for name, derivatives in arms.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=42_039)
    parser.add_argument("--epochs", type=int, default=None, help="default: at least 1,600 steps")
    arguments = parser.parse_args()
    arms = compare(arguments.rows, arguments.epochs)
    table = Table("R² on held-out rows", *arms)
    for quantity in arms["values only"]:
        table.add_row(quantity, *(f"{arm[quantity]:.4f}" for arm in arms.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
