"""The four parts of the check, and the verdict.

`pullback.check_labels` sees data alone; this check has the simulator, bumps it with the noise held
fixed, and can name the jump that falsifies a derivative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.learning.columns import Columns
from pullback.learning.label_check import LabelFinding
from pullback.pathwise.check.evidence import Evidence, gather, tail_share
from pullback.pathwise.check.words import Words
from pullback.pathwise.setup import Noise, set_up
from pullback.pathwise.simulation import Paths, Payoff, Simulation
from pullback.pathwise.states import State

ROWS, FEWEST_ROWS = 8192, 1024
# Standard errors; in bins more are compared.
FAULT, BIN_FAULT = 4.0, 5.0


@dataclass(frozen=True)
class PathwiseReport:
    """What `check_pathwise` found.

    Attributes:
        evidence: one record a derivative; none if labels are not finite.
        faults: labels that are wrong, of kind "not-finite", "random", "jump" or "bias".
        suspicions: labels that may be, of kind "jump" or "tail".
    """

    evidence: tuple[Evidence, ...]
    faults: tuple[LabelFinding, ...]
    suspicions: tuple[LabelFinding, ...]

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return not (self.faults or self.suspicions)

    @staticmethod
    def sentences(findings: Sequence[LabelFinding]) -> str:
        """Findings in words, each with its remedy."""
        return " ".join(f"{f.sentence}. {f.remedy[0].upper()}{f.remedy[1:]}." for f in findings)


def check_pathwise(
    payoff: Payoff,
    state: State,
    noise: Noise,
    *,
    rows: int | None = None,
    outputs: Sequence[str] | None = None,
    **options: Any,
) -> PathwiseReport:
    """Check the derivatives that `pathwise` would give, on a batch of its own.

    1. Every value and derivative is finite, and the same when the payoff is run again.
    2. Mean derivatives agree with common-noise bumps, overall (4 standard errors) and in eight
       bins of the input (5 standard errors).
    3. Jumps are found by bisection along each input: with a disagreement they are a fault, alone a
       suspicion, and nothing at all where the labels are seen to account for them.
    4. No single row holds the sum of squared derivatives (infinite variance), in two batches.

    Args:
        payoff: as for `pathwise`, like the next two.
        state: tensors, or distributions.
        noise: a shape, or a tensor.
        rows: of the batch; default 8,192, fewer for many inputs, never fewer than 1,024.
        outputs: K names.
        **options: seed, sampler, antithetic, paths_per_state, wrt, dtype and device of `pathwise`.

    Raises:
        InputError: as `pathwise`.
        ShapeError: as `pathwise`.

    >>> from pullback.pathwise import LogNormal
    >>> def digital(state, noise):
    ...     spot_T = state["spot"] * torch.exp(0.2 * noise[:, 0] - 0.02)
    ...     return (spot_T > 1.1).double()
    >>> report = check_pathwise(digital, {"spot": LogNormal(1.0, 0.3)}, 1, outputs=["price"])
    >>> report.faults[0].kind, report.evidence[0].jumps.size
    ('jump', 1.0)
    """
    drawn = ROWS if _is_drawn(state) else None
    return check_simulation(set_up(payoff, state, noise, rows=drawn, **options), outputs, rows)


def check_simulation(
    simulation: Simulation, outputs: Sequence[str] | None = None, rows: int | None = None
) -> PathwiseReport:
    """The check of a simulation that is set up."""
    count = rows or _batch(simulation)
    paths, y, g = _labels(simulation, count)
    words = Words(_names(simulation, y.shape[1], outputs))
    wrong = _not_finite(simulation, paths, y, g, words) or _random(simulation, paths, y, words)
    if wrong:
        return PathwiseReport((), (wrong,), ())
    evidence = tuple(gather(simulation, paths, y, g))
    faults = tuple(words.fault(e) for e in evidence if _is_fault(e))
    suspicions = [words.jumps_alone(e) for e in evidence if _is_suspect(e)]
    if any(e.tail > e.tail_limit for e in evidence):
        suspicions += _tails(simulation, evidence, count, words)
    return PathwiseReport(evidence, faults, tuple(suspicions))


def _is_drawn(state: Any) -> bool:
    parts = state.values() if isinstance(state, Mapping) else [state]
    return not any(isinstance(part, Tensor) for part in parts)


def _batch(simulation: Simulation) -> int:
    """Rows: each input costs two runs and a bisection, each row all its paths."""
    rows = min(ROWS, 8 * ROWS // len(simulation.states.columns)) // simulation.paths_per_row
    return max(FEWEST_ROWS, rows)


def _names(simulation: Simulation, count: int, outputs: Sequence[str] | None) -> Columns:
    named = outputs is not None and len(outputs) == count
    default = Columns.default(1, count).outputs
    return Columns(simulation.states.columns, tuple(outputs or ()) if named else default)


def _labels(simulation: Simulation, count: int, batch: int = 0) -> tuple[Paths, Tensor, Tensor]:
    """In float64 if the payoff can: rounding must not look like a jump."""
    paths = simulation.trial_paths(count, batch)
    exact = paths.double()
    try:
        return exact, *simulation.labels(exact, zero=True)
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        return paths, *simulation.labels(paths, zero=True)


def _not_finite(
    simulation: Simulation, paths: Paths, y: Tensor, g: Tensor, words: Words
) -> LabelFinding | None:
    bad = ~y.isfinite()
    if bad.any():
        row, k = map(int, bad.nonzero()[0])
        return words.value_not_finite(
            k, int(bad[:, k].sum()), len(y), row, _at(simulation, paths, row)
        )
    wanted = torch.tensor(simulation.states.wanted, device=g.device)
    bad = ~g.isfinite() & wanted
    if bad.any():
        row, k, d = map(int, bad.nonzero()[0])
        count = int(bad[:, k, d].sum())
        at = _at(simulation, paths, row)
        return words.derivative_not_finite(k, d, count, len(y), row, at)
    return None


def _at(simulation: Simulation, paths: Paths, row: int) -> list[float]:
    one = [value[row : row + 1] for value in paths.values]
    return simulation.states.matrix(one, torch.float64)[0].tolist()


def _random(simulation: Simulation, paths: Paths, y: Tensor, words: Words) -> LabelFinding | None:
    again = simulation.values(paths)
    for k in range(y.shape[1]):
        spread = float(y[:, k].std()) if len(y) > 1 else 0.0
        moved = float((again[:, k] - y[:, k]).abs().max())
        if moved > 1e-6 * spread and moved > 0:
            return words.random(k, moved)
    return None


def _is_fault(e: Evidence) -> bool:
    return e.score > FAULT or e.bin_score > BIN_FAULT


def _is_suspect(e: Evidence) -> bool:
    return e.jumps.share > 0 and not _is_fault(e) and e.jumps.balance <= FAULT


def _tails(
    simulation: Simulation, evidence: Sequence[Evidence], count: int, words: Words
) -> list[LabelFinding]:
    """A second batch is asked, since one may be unlucky; the caller's own noise has only one."""
    _, _, again = _labels(simulation, count, batch=1)
    found = []
    for e in evidence:
        share, limit = tail_share(again[:, e.output, e.input])
        if e.tail > e.tail_limit and share > limit:
            found.append(words.tail(e, share))
    return found
