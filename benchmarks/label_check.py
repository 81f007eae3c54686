"""How often `check_labels` finds each fault, and how often it cries wolf.

    python benchmarks/label_check.py [--seeds 50]

Every clean case must pass; every fault is put into data that passed.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import combinations

import numpy as np

from pullback.learning.label_check import LabelReport, check_labels
from pullback.pathwise.markets.bachelier import BachelierBasket

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
Case = Callable[[np.random.Generator], Data]


# Data with right labels


def rastrigin(rng: np.random.Generator, rows: int = 100) -> Data:
    x = rng.uniform(-1.0, 1.5, (rows, 2))
    y = 20.0 + (x**2 - 10.0 * np.cos(2 * np.pi * x)).sum(axis=1)
    return x, y, 2.0 * x + 20.0 * np.pi * np.sin(2 * np.pi * x)


def rastrigin_grid(rng: np.random.Generator) -> Data:
    axis = np.linspace(-1.0, 1.5, 10) + rng.uniform(0, 0.1)
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    y = 20.0 + (x**2 - 10.0 * np.cos(2 * np.pi * x)).sum(axis=1)
    return x, y, 2.0 * x + 20.0 * np.pi * np.sin(2 * np.pi * x)


def x_sin_x(rng: np.random.Generator, rows: int = 4) -> Data:
    x = np.linspace(0.0, 10.0, rows)[:, None] + rng.uniform(0, 0.5)
    return x, (x * np.sin(x))[:, 0], np.sin(x) + x * np.cos(x)


def rosenbrock(rng: np.random.Generator, side: int = 3) -> Data:
    axis = np.linspace(-np.pi, np.pi, side) + rng.uniform(-0.1, 0.1)
    a, b = (grid.ravel() for grid in np.meshgrid(axis, axis))
    y = (1 - a) ** 2 + 100 * (b - a**2) ** 2
    slopes = np.stack([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)], axis=1)
    return np.stack([a, b], axis=1), y, slopes


def smooth(rng: np.random.Generator, dim: int = 2, rows: int = 100) -> Data:
    """A sine of one direction plus a quadratic: exact labels, all columns at work."""
    x = rng.uniform(-1, 1, (rows, dim))
    w = rng.choice([-1, 1], dim) * rng.uniform(0.4, 1.2, dim)
    q = rng.uniform(0.3, 1.0, dim)
    y = np.sin(x @ w) + (x**2) @ q
    return x, y, np.cos(x @ w)[:, None] * w + 2 * q * x


def normal_inputs(rng: np.random.Generator, dim: int = 7, rows: int = 1000) -> Data:
    x = rng.normal(size=(rows, dim))
    w = rng.normal(size=dim)
    y = np.sin(x @ w) + x[:, 0] ** 2
    slopes = np.cos(x @ w)[:, None] * w
    slopes[:, 0] += 2 * x[:, 0]
    return x, y, slopes


def waves(rng: np.random.Generator, rows: int = 400, noise: float = 1.0) -> Data:
    """A noisy fast sine in one dimension: far pairs would see nothing of it."""
    x = rng.uniform(0, 1, (rows, 1))
    k = rng.uniform(20, 150)
    y = np.sin(k * x[:, 0]) + noise * rng.normal(size=rows)
    return x, y, k * np.cos(k * x) + noise * k * rng.normal(size=(rows, 1))


def direction(rng: np.random.Generator, dim: int = 20, rows: int = 8192) -> Data:
    """A fast sine of one direction among many: neighbours lie a good part of a wave apart."""
    x = rng.normal(size=(rows, dim))
    w = rng.normal(size=dim)
    w *= rng.uniform(0.5, 4.0) / np.linalg.norm(w)
    phase = rng.uniform(0, 6)
    return x, np.sin(x @ w + phase), np.cos(x @ w + phase)[:, None] * w


def basket(rng: np.random.Generator, dim: int = 7, rows: int = 2048) -> Data:
    state = np.random.RandomState(rng.integers(2**31))
    sample = BachelierBasket.random(dim, state).sample(rows, state)
    return sample.x, sample.y, sample.dydx


def digital(rng: np.random.Generator, rows: int = 2048) -> Data:
    """A digital payoff with its useless pathwise derivative (a fault, not clean)."""
    x = rng.normal(1.0, 0.3, (rows, 2))
    y = (x @ [0.6, 0.4] + 0.2 * rng.normal(size=rows) > 1.0) * 1.0
    return x, y, np.zeros_like(x)


def noisy_gradient(rng: np.random.Generator, rows: int = 1000) -> Data:
    x, y, dydx = smooth(rng, 3, rows)
    return x, y, dydx + 2.0 * dydx.std(axis=0) * rng.normal(size=dydx.shape)


def irrelevant(rng: np.random.Generator, noise: float = 0.0) -> Data:
    x, y, dydx = smooth(rng, 2, 500)
    more = rng.normal(size=(500, 3))
    return np.hstack([x, more]), y, np.hstack([dydx, noise * rng.normal(size=(500, 3))])


def constant_column(rng: np.random.Generator) -> Data:
    x, y, dydx = smooth(rng, 2, 300)
    return np.insert(x, 1, 3.0, axis=1), y, np.insert(dydx, 1, rng.normal(), axis=1)


def duplicated_column(rng: np.random.Generator) -> Data:
    x, y, dydx = smooth(rng, 2, 300)
    half = 0.5 * dydx[:, :1]
    return np.hstack([x, x[:, :1]]), y, np.hstack([half, dydx[:, 1:], half])


def duplicated_rows(rng: np.random.Generator) -> Data:
    x, y, dydx = basket(rng, 2, 1024)
    again = rng.integers(0, 1024, 2048)
    return x[again], y[again], dydx[again]


def wide(rng: np.random.Generator, dim: int = 50, rows: int = 64) -> Data:
    return normal_inputs(rng, dim, rows)


def masked(rng: np.random.Generator) -> Data:
    x, y, dydx = basket(rng, 5, 4096)
    dydx[rng.uniform(size=dydx.shape) < 0.5] = np.nan
    y[rng.uniform(size=y.shape) < 0.1] = np.nan
    dydx[:, 3] = np.nan
    return x, y, dydx


def masked_exact(rng: np.random.Generator) -> Data:
    x, y, dydx = smooth(rng, 3, 500)
    dydx[rng.uniform(size=dydx.shape) < 0.4] = np.nan
    return x, y, dydx


def outputs(rng: np.random.Generator, rows: int = 500) -> Data:
    x, first, slopes = smooth(rng, 3, rows)
    w = rng.normal(size=3)
    second = np.exp(0.5 * x @ w)
    return (
        x,
        np.stack([first, second], axis=1),
        np.stack([slopes, 0.5 * second[:, None] * w], axis=1),
    )


def single_precision(rng: np.random.Generator) -> Data:
    x, y, dydx = smooth(rng, 3, 1000)
    return tuple(part.astype(np.float32) for part in (x, 1e3 + y, dydx))


def near_linear(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(500, 4))
    w = rng.normal(size=4)
    y = x @ w + 1e-3 * np.sin(x[:, 0])
    slopes = np.tile(w, (500, 1))
    slopes[:, 0] += 1e-3 * np.cos(x[:, 0])
    return x, y, slopes


@cache
def _airfoil() -> Data:
    from smt.examples.airfoil_parameters.learning_airfoil_parameters import load_cd_training_data

    return load_cd_training_data()


def airfoil(rng: np.random.Generator, rows: int = 42_039) -> Data:
    """Drag of airfoils by 14 shape modes, Mach number and angle, with adjoint derivatives."""
    x, y, dydx = _airfoil()
    keep = rng.permutation(len(x))[:rows]
    return x[keep], y[keep], dydx[keep]


def engine(rng: np.random.Generator) -> Data:
    """Thrust and fuel flow of an engine deck: 1,056 points of a grid, two outputs."""
    from smt.examples.b777_engine.b777_engine import get_b777_engine

    x, y, dydx, _ = get_b777_engine()
    keep = rng.permutation(len(x))[:1000]
    return x[keep], y[keep], dydx[keep]


CLEAN: dict[str, Case] = {
    "Rastrigin, 100 rows": rastrigin,
    "Rastrigin, 100-point grid": rastrigin_grid,
    "Rastrigin, 1,000 rows": partial(rastrigin, rows=1000),
    "x sin x, 4 rows": x_sin_x,
    "x sin x, 12 rows": partial(x_sin_x, rows=12),
    "x sin x, 20 rows": partial(x_sin_x, rows=20),
    "Rosenbrock, 3x3": rosenbrock,
    "Rosenbrock, 5x5": partial(rosenbrock, side=5),
    "smooth, D=2, 100 rows": smooth,
    "smooth, D=7, 1,000 rows": partial(smooth, dim=7, rows=1000),
    "normal inputs, D=7, 1,000 rows": normal_inputs,
    "normal inputs, D=50, 64 rows": wide,
    "normal inputs, D=20, 400 rows": partial(wide, dim=20, rows=400),
    "sine of a direction, D=20, 8,192 rows": direction,
    "sine of a direction, D=7, 2,000 rows": partial(direction, dim=7, rows=2000),
    "sine of a direction, D=7, 200 rows": partial(direction, dim=7, rows=200),
    "noisy fast sine, 400 rows": waves,
    "noisy fast sine, 64 rows": partial(waves, rows=64),
    "noisy fast sine, 400 rows, noise 5": partial(waves, noise=5.0),
    "basket D=1, 1,024 rows": partial(basket, dim=1, rows=1024),
    "basket D=1, 16,384 rows": partial(basket, dim=1, rows=16384),
    "basket D=2, 256 rows": partial(basket, dim=2, rows=256),
    "basket D=7, 1,024 rows": partial(basket, dim=7, rows=1024),
    "basket D=7, 8,192 rows": partial(basket, dim=7, rows=8192),
    "basket D=20, 4,096 rows": partial(basket, dim=20, rows=4096),
    "basket D=50, 1,024 rows": partial(basket, dim=50, rows=1024),
    "basket D=50, 16,384 rows": partial(basket, dim=50, rows=16384),
    "gradient noise of 2 sd": noisy_gradient,
    "irrelevant inputs, labels 0": irrelevant,
    "irrelevant inputs, labels 1e-6 noise": partial(irrelevant, noise=1e-6),
    "constant column": constant_column,
    "duplicated column": duplicated_column,
    "duplicated rows": duplicated_rows,
    "half unknown, noisy": masked,
    "40 % unknown, exact": masked_exact,
    "two outputs": outputs,
    "float32": single_precision,
    "near-constant derivatives": near_linear,
    "airfoil, 42,039 rows": airfoil,
    "airfoil, 2,000 rows": partial(airfoil, rows=2000),
    "B777 engine": engine,
}


# Faults


def factor(data: Data, rng: np.random.Generator, value: float) -> Data:
    return data[0], data[1], data[2] * value


def one_column(data: Data, rng: np.random.Generator, value: float) -> Data:
    x, y, dydx = data
    dydx = dydx.copy()
    dydx[..., _strongest(data)[0]] *= value
    return x, y, dydx


def swap(data: Data, rng: np.random.Generator) -> Data:
    """The strongest column with the one least like it among those that matter."""
    x, y, dydx = data
    first, second = _unlike(data)
    dydx = dydx.copy()
    dydx[..., [first, second]] = dydx[..., [second, first]]
    return x, y, dydx


def standardise(data: Data, rng: np.random.Generator) -> Data:
    """A scaler in front of inputs that had units of their own: spreads of 3 to 30, or 1 by that."""
    x, y, dydx = data
    spread = (3.0 * 10.0 ** rng.uniform(0, 1, x.shape[1])) ** rng.choice([-1, 1], x.shape[1])
    return (x - x.mean(axis=0)) / x.std(axis=0), y, dydx * x.std(axis=0) / spread


def shuffle(data: Data, rng: np.random.Generator) -> Data:
    return data[0], data[1], data[2][rng.permutation(len(data[0]))]


def other_output(data: Data, rng: np.random.Generator) -> Data:
    return data[0], data[1], data[2][:, ::-1]


def zero_column(data: Data, rng: np.random.Generator) -> Data:
    return one_column(data, rng, 0.0)


def same(data: Data, rng: np.random.Generator) -> Data:
    return data


def _shares(data: Data) -> np.ndarray:
    x, _, dydx = data
    slopes = dydx if dydx.ndim == 2 else dydx[:, 0]
    return np.sqrt(np.nanmean(slopes**2, axis=0)) * x.std(axis=0)


def _strongest(data: Data) -> np.ndarray:
    return np.argsort(-_shares(data))


def _unlike(data: Data) -> tuple[int, int]:
    """Columns as unlike as there are, among those that move y clearly."""
    shares = _shares(data)
    good = np.flatnonzero(shares > 0.3 * shares.max())
    if len(good) < 2:
        good = np.argsort(-shares)[:2]
    return max(combinations(good.tolist(), 2), key=partial(_unlikeness, data))


def _unlikeness(data: Data, pair: tuple[int, int]) -> float:
    """Above 1 where one is 2.6 times the other, or of the other sign: (r - 1)² / r."""
    slopes = data[2] if data[2].ndim == 2 else data[2][:, 0]
    a, b = slopes[:, pair[0]], slopes[:, pair[1]]
    return float(np.mean((a - b) ** 2) / np.sqrt(np.mean(a**2) * np.mean(b**2)))


# What the fault is called, the columns it must name (None: any), and the factor found.
Fault = Callable[[Data, np.random.Generator], Data]
FAULTS: dict[str, tuple[str, Fault]] = {
    "all signs": ("sign", partial(factor, value=-1.0)),
    "one sign": ("sign", partial(one_column, value=-1.0)),
    "swapped": ("swapped", swap),
    "all x 627.5": ("factor", partial(factor, value=627.5)),
    "all x 1/3": ("factor", partial(factor, value=1 / 3)),
    "column x 100": ("factor", partial(one_column, value=100.0)),
    "column x 1e-4": ("factor", partial(one_column, value=1e-4)),
    "standardised X": ("scaled-inputs", standardise),
    "shuffled rows": ("unrelated", shuffle),
    "column zero": ("zero", zero_column),
}
FAULTY_DATA: dict[str, Case] = {
    "smooth, D=2, 100 rows": smooth,
    "smooth, D=7, 1,000 rows": partial(smooth, dim=7, rows=1000),
    "smooth, D=7, 8,192 rows": partial(smooth, dim=7, rows=8192),
    "basket D=1, 2,048 rows": partial(basket, dim=1, rows=2048),
    "basket D=7, 2,048 rows": basket,
    "basket D=7, 8,192 rows": partial(basket, dim=7, rows=8192),
    "basket D=20, 8,192 rows": partial(basket, dim=20, rows=8192),
    "airfoil, 42,039 rows": airfoil,
}


def cells(name: str, data: Case) -> Iterator[tuple[str, str, str, Case, Fault]]:
    for fault, (kind, spoil) in FAULTS.items():
        if "D=1," not in name or fault not in ("swapped", "one sign", "column zero"):
            yield name, fault, kind, data, spoil


def all_faults() -> Iterator[tuple[str, str, str, Case, Fault]]:
    for name, data in FAULTY_DATA.items():
        yield from cells(name, data)
    yield "two outputs, 500 rows", "other output", "other-output", outputs, other_output
    yield "digital payoff, 2,048 rows", "pathwise derivative 0", "zero", digital, same


def right_factor(report: LabelReport, fault: str) -> bool:
    """Whether the number found is within a quarter of the truth, where there is one."""
    truth = {"all x 627.5": 1 / 627.5, "all x 1/3": 3.0, "column x 100": 0.01, "column x 1e-4": 1e4}
    if fault not in truth:
        return True
    values = [found.value for found in report.findings if found.kind == "factor"]
    return any(abs(value / truth[fault] - 1.0) < 0.25 for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", choices=["clean", "faults", "both"], default="both")
    arguments = parser.parse_args()
    seeds, heavy = arguments.seeds, max(1, arguments.seeds // 10)
    if arguments.part != "faults":
        print(f"{'right labels':40} {'alarms':>12} {'consistent':>10} {'CPU s':>7}")
        alarms = total = 0
        for name, case in CLEAN.items():
            if arguments.only not in name:
                continue
            count = heavy if "16,384" in name or "42,039" in name else seeds
            found, sure, spent = 0, [], 0.0
            for seed in range(count):
                data = case(np.random.default_rng(seed))
                start = time.process_time()
                report = check_labels(*data)
                spent += time.process_time() - start
                found += not report.ok
                if not report.ok and found <= 3:
                    print("   !", seed, [f.sentence for f in report.findings][:4])
                sure.append(np.mean([f.verdict == "consistent" for f in report.factors]))
            alarms, total = alarms + found, total + count
            print(f"{name:40} {found:5d} /{count:5d} {np.mean(sure):10.0%} {spent / count:7.3f}")
        print(f"{'in all':40} {alarms:5d} /{total:5d}\n")
    if arguments.part == "clean":
        return
    print(f"{'data':28} {'fault':22} {'found':>6} {'named':>6} {'number':>6} {'CPU s':>7}")
    for name, fault, kind, case, spoil in all_faults():
        if arguments.only not in name:
            continue
        count = heavy if "42,039" in name else max(1, seeds // 2 if "8,192" in name else seeds)
        found = named = number = 0
        spent = 0.0
        for seed in range(count):
            rng = np.random.default_rng(seed)
            data = case(rng)
            while fault == "swapped" and _unlikeness(data, _unlike(data)) < 1.0:
                data = case(rng)  # columns that are alike may be swapped and no one is the wiser
            data = spoil(data, rng)
            start = time.process_time()
            report = check_labels(*data)
            spent += time.process_time() - start
            found += not report.ok
            named += any(one.kind == kind for one in report.findings)
            number += right_factor(report, fault)
        row = [f"{part / count:6.0%}" for part in (found, named, number)]
        print(f"{name:28} {fault:22} {' '.join(row)} {spent / count:7.3f}", flush=True)


if __name__ == "__main__":
    main()
