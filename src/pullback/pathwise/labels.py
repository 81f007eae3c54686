"""Labels with derivatives from a simulated payoff."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import torch
from torch import Tensor

from pullback.derivatives._checks import check_unconnected
from pullback.errors import InputError, LabelError, LabelWarning
from pullback.learning.columns import Columns
from pullback.learning.data import DifferentialData
from pullback.learning.progress import progress_bar
from pullback.pathwise.check import PathwiseReport, check_simulation
from pullback.pathwise.setup import Noise, check_count, set_up
from pullback.pathwise.simulation import Payoff, Simulation
from pullback.pathwise.states import State, States


@dataclass(frozen=True, eq=False)
class Labels(DifferentialData):
    """Differential data that knows its names.

    Attributes:
        columns: names and units of inputs and outputs.
        report: what the label check found, if it ran.

    >>> columns = Columns(("spot",), ("price",))
    >>> labels = Labels(torch.zeros(2, 1), torch.zeros(2, 1), columns=columns)
    >>> labels.take(slice(0, 1)).columns.inputs
    ('spot',)
    """

    columns: Columns = field(default_factory=lambda: Columns((), ()))
    report: PathwiseReport | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Labels":
        """See `DifferentialData.map`."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        changed = {k: change(v) if isinstance(v, Tensor) else v for k, v in present.items()}
        return Labels(**changed)  # type: ignore[arg-type]


def pathwise(
    payoff: Payoff,
    state: State,
    noise: Noise,
    *,
    rows: int | range | None = None,
    seed: int = 0,
    sampler: Literal["pseudo", "sobol"] = "pseudo",
    antithetic: bool = False,
    paths_per_state: int = 1,
    wrt: str | Sequence[str] | None = None,
    unconnected: Literal["error", "zero"] = "error",
    check_labels: Literal["raise", "warn"] | bool = "raise",
    check_rows: bool = True,
    outputs: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    chunk_rows: int = 8192,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = False,
) -> Labels:
    """Return payoffs of simulated paths with their derivatives with respect to the whole state.

    y[n] is the mean of payoff(x[n], noise) over the paths of row n, and

        dydx[n, k, d] = ∂y[n, k] / ∂x[n, d]   with the noise held fixed:

    the derivative of each path itself, never 1/N of it, from one backward for all D (adjoint
    differentiation). Where the payoff is continuous, its mean is the derivative of the mean.

    A row depends on its number and on `seed` alone: chunks, ranks and restarts give the same
    labels. Two calls with the same seed use common random numbers, whatever their states.

    Args:
        payoff: a function of state and noise with independent rows, giving [N] or [N, K]. The state
            is what `state` is: a tensor [N, D], or a dict of tensors [N] or [N, n]. It must not
            draw random numbers itself.
        state: a tensor or a mapping of tensors (rows are given), or a `Distribution` or a mapping
            of them (rows are drawn). Parts that are integer or boolean are passed on and not
            differentiated.
        noise: the shape of one path's standard normals, such as (12, 2); or a tensor of the
            caller's own [N, …].
        rows: how many rows to draw; a range asks for those rows of the same sequence, so that
            ranks and shards each make their own. With a given state, a range says which they are.
        seed: not negative.
        sampler: "pseudo", or "sobol" for scrambled Sobol points jointly over state and noise.
        antithetic: average each path with that of minus its noise, in one row.
        paths_per_state: independent paths averaged in one row.
        wrt: parts of the state to differentiate by; default all floating ones. Derivatives by the
            others are NaN, which is unknown.
        unconnected: "error", or "zero" for zeros where the payoff does not depend on a part.
        check_labels: "raise" or "warn" when `check_pathwise` finds labels that are wrong; False
            leaves the check out. What it merely suspects is a LabelWarning.
        check_rows: probe first whether rows are independent.
        outputs: K names; default y, or y0, y1, ….
        units: by name of input or output.
        chunk_rows: rows of the payoff at a time; memory for paths grows with it and not with N.
        dtype: of drawn states and their noise; default float64. A given state decides for itself.
        device: of drawn states. A given state decides for itself.
        progress: True shows a bar on standard error, None does so on a terminal.

    Returns:
        x [N, D], y [N, K] and dydx [N, K, D], with `columns` and `report`.

    Raises:
        InputError: an option is out of range, or all rows share one draw of the noise.
        ShapeError: shapes do not belong together.
        LabelError: the label check found derivatives that are wrong.
        UnconnectedInputError: the payoff does not depend on a part of the state.
        CoupledRowsError: a path depends on another one.

    References:
        Huge and Savine, Differential machine learning, 2020; Giles and Glasserman, Smoking
        adjoints, 2006.

    >>> def call(state, noise):
    ...     vol = 0.2
    ...     spot_T = state["spot"] * torch.exp(vol * noise[:, 0] - vol**2 / 2)
    ...     return torch.relu(spot_T - state["strike"])
    >>> spot = torch.linspace(0.5, 1.5, 1000, dtype=torch.float64)
    >>> labels = pathwise(call, {"spot": spot, "strike": torch.ones_like(spot)}, noise=1, seed=7)
    >>> labels.y.shape, labels.dydx.shape, labels.columns.derivatives
    (torch.Size([1000, 1]), torch.Size([1000, 1, 2]), ('dy/dspot', 'dy/dstrike'))
    """
    check_unconnected("pathwise", unconnected)
    check_count("chunk_rows", chunk_rows, 1)
    if check_labels not in ("raise", "warn", True, False):
        raise InputError(
            f"pathwise: expected check_labels='raise', 'warn' or False, got {check_labels!r}"
        )
    simulation = set_up(
        payoff, state, noise, rows=rows, seed=seed, sampler=sampler, antithetic=antithetic,
        paths_per_state=paths_per_state, wrt=wrt, dtype=dtype, device=device,
    )  # fmt: skip
    if check_rows:
        simulation.check_rows()
    report = check_simulation(simulation, outputs) if check_labels else None
    if report is not None:
        _act(report, check_labels)
    size = max(1, chunk_rows // simulation.paths_per_row)
    with progress_bar(progress, "simulate") as told:
        parts = _run(simulation, size, unconnected == "zero", told)
    columns = _columns(simulation.states, parts[1].shape[1], outputs, units)
    return Labels(*parts, columns=columns, report=report)


def _run(
    simulation: Simulation, size: int, zero: bool, told: Callable[..., None]
) -> tuple[Tensor, Tensor, Tensor]:
    """x, y and dydx of all rows, `size` rows at a time."""
    whole: tuple[Tensor, Tensor, Tensor] | None = None
    where = simulation.rows
    for done in range(0, len(where), size):
        chunk = where[done : done + size]
        paths = simulation.paths(chunk)
        y, dydx = simulation.labels(paths, zero=zero)
        x = simulation.states.matrix(paths.values, simulation.dtype)
        part = (x, y, dydx)
        if whole is None:
            whole = tuple(t.new_empty(len(where), *t.shape[1:]) for t in part)  # type: ignore[assignment]
        assert whole is not None
        for kept, new in zip(whole, part, strict=True):
            kept[done : done + len(chunk)] = new
        told(done + len(chunk), len(where), {})
    assert whole is not None, "a range of rows is not empty"
    return whole


def _act(report: PathwiseReport, check_labels: str | bool) -> None:
    """Raise or warn of what the check found."""
    if report.faults and check_labels != "warn":
        raise LabelError(f"pathwise: {report.sentences(report.faults)}")
    found = (*report.faults, *report.suspicions)
    if found:
        warnings.warn(f"pathwise: {report.sentences(found)}", LabelWarning, stacklevel=3)


def _columns(
    states: States, count: int, outputs: Sequence[str] | None, units: Mapping[str, str] | None
) -> Columns:
    default = Columns.default(len(states.columns), count)
    names = default.outputs if outputs is None else tuple(outputs)
    if len(names) != count:
        raise InputError(f"pathwise: expected {count} names in outputs, got {len(names)}")
    return Columns(states.columns, names, units or {})
