"""Surrogates of engineering functions with exact derivatives, beside jenn and SMT.

    python -m benchmarks.engineering [problem …] [--quick]

Every network of a problem has the hidden widths of the published table. Our two arms, values only
and differential, are tuned alike: each takes from the same menu what predicts held-out training
values best; what the defaults give stands beside it. Test rows choose nothing.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import KFold

from benchmarks import peers
from benchmarks.problems import PROBLEMS, Problem, Rows
from benchmarks.record import Claim, claims_as_json, conclude, cpu_seconds, fraction, save
from pullback.learning import Columns, DifferentialRegressor
from pullback.learning.loss import FLOOR
from pullback.reports.metrics import measure

_FULL = {"optimizer": "broyden", "epochs": 4_000}
# The same for both arms; on values only the floor under derivatives has no effect.
MENU: tuple[dict[str, Any], ...] = (
    {"optimizer": "adam"},
    _FULL,
    {**_FULL, "activation": "tanh"},
    {**_FULL, "activation": "sin"},
    {**_FULL, "epochs": 300},
    {**_FULL, "weight_decay": 1e-5},
    {**_FULL, "weight_decay": 1e-4},
    {**_FULL, "weight_decay": 1e-5, "activation": "sin"},
    {**_FULL, "derivative_floor": 1e-2},
    {**_FULL, "derivative_floor": 0.1, "activation": "tanh"},
)
MENU_OF_MANY_ROWS: tuple[dict[str, Any], ...] = (
    {"epochs": 300},
    {"epochs": 300, "activation": "tanh"},
    {"epochs": 300, "learning_rate": 0.01},
    {"epochs": 300, "learning_rate": 0.03},
)
MANY = 5_000
# A derivative whose effect on y is below this share of its spread is zero but for rounding.
NOTHING = 1e-9


@dataclass
class Result:
    """One method on one problem, one seed.

    Attributes:
        method: such as "differential, tuned".
        seed: of weights and shuffles.
        setting: hyper-parameters other than the defaults.
        value_r2: of each output.
        derivative_r2: of each derivative that is not identically zero.
        scaled_rmse: mean over derivatives of RMSE · sd x / sd y.
        cosine: mean over rows, of gradients free of units.
        right_sign: mean over derivatives of the share of rows with the right sign.
        cpu_seconds: of fit and prediction.
        failure: what went wrong, instead of figures.
    """

    method: str
    seed: int
    setting: dict[str, Any]
    value_r2: list[float]
    derivative_r2: list[float]
    scaled_rmse: float
    cosine: float
    right_sign: float
    cpu_seconds: float
    failure: str = ""


@dataclass(frozen=True)
class Plan:
    """How a problem is run, and what it is held against.

    Attributes:
        seeds: how many for our arms.
        published: the best row of the published table, in words.
        bounds: figure of the differential arm, by name, to its bound; see `FIGURES`.
        rivals: name to a call (problem, seed) of another package.
        rival_seeds: how many for them.
    """

    seeds: int
    published: str
    bounds: dict[str, float]
    rivals: dict[str, Callable[[Problem, int], peers.Predictions]]
    rival_seeds: int = 1


def _jenn(**options: Any) -> dict[str, Callable[[Problem, int], peers.Predictions]]:
    return {
        "jenn, values only": partial(peers.jenn, derivatives=False, **options),
        "jenn": partial(peers.jenn, **options),
    }


_GENN = {"SMT GENN": partial(peers.genn, alpha=0.01, lambd=1e-4, num_iterations=3_000)}
_AIRFOIL = _jenn(alpha=1e-2, lambd=1e-2, batch_size=1_000, max_iter=2, epochs=25, is_normalize=True)

FIGURES: dict[str, Callable[[Result], float]] = {
    "R² y": lambda r: min(r.value_r2),
    "R² first y": lambda r: r.value_r2[0],
    "R² second y": lambda r: r.value_r2[1],
    "R² of derivatives, mean": lambda r: float(np.mean(r.derivative_r2)),
    "R² of derivatives, min": lambda r: min(r.derivative_r2),
    "derivatives above 0.94": lambda r: sum(one > 0.94 for one in r.derivative_r2),
    "derivatives above 0.999": lambda r: sum(one > 0.999 for one in r.derivative_r2),
}

PLANS: dict[str, Plan] = {
    "sinusoid": Plan(
        10, "jenn: R² y 0.990 (0.983–0.995), derivative 0.995",
        {"R² y": 0.990, "R² of derivatives, min": 0.995},
        _jenn(alpha=0.05, lambd=0.1, max_iter=1_000), 10,
    ),
    "rastrigin": Plan(
        3, "L-BFGS: R² y 0.9986 / 0.9979, derivatives 0.987–0.998; GP 0.9986, 0.996–0.999",
        {"R² y": 0.9986, "R² of derivatives, mean": 0.998},
        _jenn(alpha=1e-3, lambd=1e-4, max_iter=10_000, is_normalize=True),
    ),
    "rosenbrock": Plan(
        2, "L-BFGS: R² y 1 - 4e-8, derivatives 0.999999",
        {"R² y": 1 - 4e-8, "R² of derivatives, min": 0.999999},
        _jenn(alpha=1e-3, lambd=1e-3, max_iter=5_000, is_normalize=True),
    ),
    "airfoil": Plan(
        2, "R² y 0.9971 (floor 0.01); derivatives mean 0.84, min 0.59 (balanced, y 0.9910)",
        {"R² y": 0.9971, "R² of derivatives, mean": 0.84, "R² of derivatives, min": 0.59},
        _AIRFOIL,
    ),
    "airfoil-wide": Plan(
        2, "balanced: R² y 0.9989, derivatives mean 0.93, min 0.81",
        {"R² y": 0.9989, "R² of derivatives, mean": 0.93, "R² of derivatives, min": 0.81},
        {"jenn": _AIRFOIL["jenn"]},
    ),
    "b777": Plan(
        2, "L-BFGS: R² y 0.99998, 0.99994; derivatives 0.963–1.000",
        {"R² first y": 0.99998, "R² second y": 0.99994, "R² of derivatives, min": 0.963},
        _jenn(alpha=1e-2, lambd=1e-4, max_iter=3_000, is_normalize=True),
    ),
    "wing-weight": Plan(
        2, "L-BFGS: R² y 0.99997, 7 of 10 derivatives above 0.94",
        {"R² y": 0.99997, "derivatives above 0.94": 7},
        {"SMT GEKPLS": partial(peers.gekpls, n_comp=2, extra_points=2), **_GENN},
    ),
    "robot-arm": Plan(
        2, "L-BFGS: R² y 0.78; one derivative is identically zero", {"R² y": 0.78}, _GENN
    ),
    "water-flow": Plan(
        2, "GEKPLS: R² y 0.999996, 5 of 8 derivatives above 0.999",
        {"R² y": 0.999996, "derivatives above 0.999": 5},
        {"SMT GEKPLS": partial(peers.gekpls, n_comp=3, extra_points=3), **_GENN},
    ),
}  # fmt: skip


def fit(problem: Problem, seed: int, *, derivatives: bool, **setting: Any) -> Any:
    """Our network on the problem's rows, values only or with derivatives."""
    model = DifferentialRegressor(
        **{"hidden": problem.hidden, "random_state": seed, "progress": False, **setting}
    )
    return model.fit(problem.train.x, problem.train.y, problem.train.dydx if derivatives else None)


def ours(problem: Problem, seed: int, *, derivatives: bool, **setting: Any) -> peers.Predictions:
    """Predictions of `fit` on the test rows."""
    model = fit(problem, seed, derivatives=derivatives, **setting)
    y, dydx = model.predict(problem.test.x, return_gradient=True)
    shape = problem.test.dydx.shape
    return y.reshape(shape[:2]), dydx.reshape(shape)


def tune(problem: Problem, *, derivatives: bool) -> dict[str, Any]:
    """The entry of the menu that predicts held-out training rows best, seed 0.

    Best at the labels that the arm learns from: values, or values and derivatives, each derivative
    measured in its own size as the loss does.

    One fifth is held out of many rows, every third in turn of few, every one in turn of a handful.
    """
    rows = len(problem.train.x)
    menu = MENU_OF_MANY_ROWS if rows > MANY else MENU
    count = rows if rows < 10 else 3 if rows <= 100 else 5
    folds = list(KFold(count, shuffle=True, random_state=0).split(problem.train.x))
    folds = folds if rows <= 100 else folds[:1]

    square = (problem.train.dydx**2).mean(0) * problem.train.x.var(0)
    # Floored like the loss: one that is zero, or tiny, must not decide alone.
    size = np.sqrt(square + FLOOR * square.max(1, keepdims=True)) / problem.train.x.std(0)

    def error(setting: dict[str, Any]) -> float:
        squares = []
        for kept, held in folds:
            part = Problem("", problem.train.take(kept), problem.train.take(held), problem.hidden)
            try:
                y, dydx = ours(part, 0, derivatives=derivatives, **setting)
            except ArithmeticError as failure:
                # A diverged run of one entry is that entry's score.
                Console(stderr=True).print(f"{setting}: {failure}")
                return np.inf
            squares.append(((y - part.test.y) / problem.train.y.std(0)).ravel() ** 2)
            if derivatives:
                squares.append(((dydx - part.test.dydx) / size).ravel() ** 2)
        return float(np.mean(np.concatenate(squares)))

    return min(menu, key=error)


def evaluate(
    method: str,
    predict: Callable[[Problem, int], peers.Predictions],
    problem: Problem,
    seed: int,
    setting: dict[str, Any],
) -> Result:
    """Run and measure; an exception is a result too."""
    with cpu_seconds() as spent:
        try:
            y, dydx = predict(problem, seed)
            failure = "" if np.isfinite(y).all() else "predictions are not finite"
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:200]
    if failure:
        nan = float("nan")
        return Result(method, seed, setting, [nan], [nan], nan, nan, nan, spent[0], failure)
    return Result(method, seed, setting, *_figures(problem.test, y, dydx), spent[0])


def _figures(test: Rows, y: Any, dydx: Any) -> tuple[list[float], list[float], float, float, float]:
    columns = Columns.default(test.x.shape[1], test.y.shape[1])
    metrics = measure(columns, test.x, test.y, y, test.dydx, dydx)
    size = np.sqrt((test.dydx**2).mean(0)) * test.x.std(0) / test.y.std(0)[:, None]
    real = [
        metric for metric, s in zip(metrics.derivatives, size.ravel(), strict=True) if s > NOTHING
    ]
    return (
        [metric.r2 for metric in metrics.values],
        [metric.r2 for metric in real if metric.r2 is not None],
        metrics.mean_scaled_derivative_rmse or 0.0,
        float(np.mean([one.cosine for one in metrics.directions])),
        float(np.mean([metric.right_sign for metric in real])),
    )


def run(name: str, console: Console, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """All methods on one problem: what is written down, and its claims."""
    plan, problem = PLANS[name], PROBLEMS[name]()
    results = []
    for method, derivatives in (("values only", False), ("differential", True)):
        settings = {"defaults": {}}
        if not quick:
            settings["tuned"] = tune(problem, derivatives=derivatives)
        for label, setting in settings.items():
            predict = partial(ours, derivatives=derivatives, **setting)
            console.print(f"{problem.title}: {method}, {label} {setting}", style="dim")
            results += [
                evaluate(f"{method}, {label}", predict, problem, seed, setting)
                for seed in range(1 if quick else plan.seeds)
            ]
    for method, predict in () if quick else plan.rivals.items():
        console.print(f"{problem.title}: {method}", style="dim")
        results += [
            evaluate(method, predict, problem, seed, {}) for seed in range(plan.rival_seeds)
        ]
    claims = _claims(name, plan, results, quick)
    entry = {
        "title": problem.title, "published": plan.published,
        "results": [asdict(result) for result in results], "claims": claims_as_json(claims),
    }  # fmt: skip
    return entry, claims


def median(results: list[Result], figure: str) -> float:
    """Over seeds; a failed seed counts as the worst."""
    return float(np.median([np.nan_to_num(FIGURES[figure](r), nan=-np.inf) for r in results]))


def _claims(name: str, plan: Plan, results: list[Result], quick: bool) -> list[Claim]:
    label = "defaults" if quick else "tuned"
    arm = [r for r in results if r.method == f"differential, {label}"]
    plain = [r for r in results if r.method == f"values only, {label}"]
    mean = "R² of derivatives, mean"
    claims = [
        Claim(f"{name}: {figure}", median(arm, figure), bound)
        for figure, bound in plan.bounds.items()
    ]
    text = f"{name}: values only, tuned alike, has more than twice the error in derivatives"
    missed, left = 1 - median(plain, mean), 1 - median(arm, mean)
    return [*claims, Claim(text, missed / left if left > 0 else np.inf, 2.0, premise=True)]


def table(entry: dict[str, Any]) -> Table:
    """One row a method: medians over seeds, worst and best seed of R² y in brackets."""
    shown = Table(title=entry["title"], caption=f"published best: {entry['published']}")
    for heading in ("method", "R² y", "R² ∂y mean", "min", "> 0.9", "scaled RMSE ∂y", "cosine",
                    "right sign", "CPU s"):  # fmt: skip
        shown.add_column(heading, justify="left" if heading == "method" else "right")
    by_method: dict[str, list[Result]] = {}
    for fields in entry["results"]:
        by_method.setdefault(fields["method"], []).append(Result(**fields))
    for method, results in by_method.items():
        shown.add_row(*_cells(method, results))
    return shown


def _cells(method: str, results: list[Result]) -> list[str]:
    failed = [result for result in results if result.failure]
    setting = results[0].setting
    name = f"{method} {json.dumps(setting)}" if setting else method
    if failed:
        return [name, f"{len(failed)} of {len(results)} failed: {failed[0].failure}", *[""] * 7]
    values = [FIGURES["R² y"](result) for result in results]
    spread = f" ({fraction(min(values))}, {fraction(max(values))})" if len(values) > 1 else ""
    above = np.median([sum(one > 0.9 for one in result.derivative_r2) for result in results])
    plain = [
        np.median([getattr(result, field) for result in results])
        for field in ("scaled_rmse", "cosine", "right_sign", "cpu_seconds")
    ]
    return [
        name,
        fraction(float(np.median(values))) + spread,
        fraction(median(results, "R² of derivatives, mean")),
        fraction(median(results, "R² of derivatives, min")),
        f"{above:.0f} of {len(results[0].derivative_r2)}",
        f"{plain[0]:.2g}", fraction(plain[1]), f"{plain[2]:.1%}", f"{plain[3]:.1f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="problem", help=", ".join(PROBLEMS))
    parser.add_argument("--quick", action="store_true", help="defaults, one seed, no peers")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.problems if name not in PROBLEMS]
    if unknown:
        parser.error(f"unknown {', '.join(unknown)}; choose from {', '.join(PROBLEMS)}")
    console = Console(width=170)
    claims: list[Claim] = []
    for problem in arguments.problems or PROBLEMS:
        entry, found = run(problem, console, quick=arguments.quick)
        save(f"{'quick' if arguments.quick else 'engineering'}-{problem}", entry)
        console.print(table(entry))
        claims += found
    conclude(claims, console)


if __name__ == "__main__":
    main()
