"""The moments that value labels and derivative labels must share, at a ladder of distances.

Notation: rows a and b of a pair, Δx = x_b - x_a, Δy = y_b - y_a, H_j = ½(g_j(a) + g_j(b)) Δx_j with
g the derivative labels, and c_j g_j the true derivatives. By the trapezoid rule

    Δy = Σ_j c_j H_j + u,        E[u | x] = -1/12 Δx³ ∂³f + ...,

where u also holds the noise of both labels. Three things stand in the way of plain regression.

*Noise in g* (one simulated path a row) makes H noisy, and its noise is correlated with that of y.
So c solves E[z u] = 0 with instruments z_j = ĝ_j Δx_j, where ĝ_j is a mean of the labels of *other*
rows around the pair: it depends on x and on other rows' noise only. Which surroundings (the nearest
rows, the leaf, larger blocks) is chosen by regressing H_j on at most four candidates, column by
column, so that the system stays just identified and has no bias of many instruments:

    c = A⁻¹ Zᵀ Δy,   A = Zᵀ H,   estimate - truth = Σ_p A⁻¹ z_p u_p.

*Pairs share rows*, and the noise is not equal. The variance adds up the influences of each row,
with v_p = A⁻¹ z_p u_p and s_i = Σ_{p∋i} v_p (dyadic clusters; Fafchamps & Gubert 2007):

    V = Σ_i s_i² - Σ_p v_p².

A few rows may carry all of it; (Σ s²)² / Σ s⁴ says how many do, and serves as the degrees of
freedom of Student's t.

*Curvature* biases c by about b h² at pair length h, so that estimates at several lengths tell b.
Where the labels themselves turn within a pair's length, even that fails. With

    κ = E[(g_a - g_b)²] / E[(g_a + g_b)²]

the trapezoid's relative error is near κ/3, and a level is used only where κ is clearly below 3/4.
The noise is taken out of both squares by multiplying with the same expression in the nearest rows.

A last moment needs no instrument from g: Δy′ between the rows nearest to a and to b. For right
labels E[z H] = E[z Δy] with any function z of Δy′, whatever their noise; λ is the ratio of the two,
less one common linear function of x. Rows in another order give λ = 0, although their mean slope,
and with it c, is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pullback.learning._neighbours import Floats, Neighbourhood, Pairs

Booleans = NDArray[np.bool_]

# One-sided, of a c on the very edge of being a fault: with six levels and twenty inputs 1e-4 a data
# set. Right labels have c = 1, far inside.
CRITICAL_PROBABILITY = 1e-6
STRENGTH = 4.0
ROUGHEST, CLEARLY_RESOLVED = 0.75, 2.5
ROWS_PER_COEFFICIENT = 25


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of some coefficients, one a column, at one level of the ladder, all [Q].

    Attributes:
        value, error: the estimate and its standard error.
        critical: how many standard errors are clear.
        usable: the instrument is strong, and the labels do not turn within the pair's length.
        share: the part of the variation of y that a coefficient of one makes.
        length: root mean square distance of the pairs.
    """

    value: Floats
    error: Floats
    critical: Floats
    usable: Booleans
    share: Floats
    length: float

    def take(self, columns: Sequence[int]) -> "Estimates":
        """Some of the coefficients."""
        keep = list(columns)
        return Estimates(
            self.value[keep],
            self.error[keep],
            self.critical[keep],
            self.usable[keep],
            self.share[keep],
            self.length,
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """What one level says.

    Attributes:
        factors: c_j, [D]; not finite where it cannot be found.
        common: one c for all inputs, [1].
        slopes: of y in inputs without a label, or with labels zero throughout, constant and
            proportional to x_j, [2D].
        agreement: λ, [1].
    """

    factors: Estimates
    common: Estimates
    slopes: Estimates
    agreement: Estimates


def moments(hood: Neighbourhood, pairs: Pairs, y: Floats, g: Floats, free: Booleans) -> Moments:
    """The moments of one level.

    Args:
        hood: the rows, arranged.
        pairs: one level of its ladder.
        y: value labels in the order of `hood`, [n].
        g: derivative labels in units of its x, [n, D], without gaps.
        free: inputs whose labels say nothing: zero throughout, or unknown, [D].
    """
    x, inputs = hood.x, g.shape[1]
    dx = x[pairs.b] - x[pairs.a]
    squared = (dx**2).sum(axis=1)
    # Between equal weight (best against noise) and weight by slope (best against curvature).
    weight = 1.0 / np.sqrt(squared + np.median(squared))
    dx *= weight[:, None]
    dy = (y[pairs.b] - y[pairs.a]) * weight
    labelled = np.flatnonzero(~free)
    h = 0.5 * (g[pairs.a] + g[pairs.b])[:, labelled] * dx[:, labelled]
    z = _instruments(hood, pairs, g[:, labelled], dx[:, labelled], h)
    middle = 0.5 * (x[pairs.a] + x[pairs.b])[:, free]
    extra = np.concatenate([dx[:, free], dx[:, free] * middle], axis=1)
    resolved, all_resolved = _resolved(pairs, g[:, labelled], dx[:, labelled], len(x))
    length = float(np.sqrt(squared.mean()))

    fit = _solve(np.hstack([h, extra]), np.hstack([z, extra]), dy, pairs, len(x), length)
    together = _solve(
        np.hstack([h.sum(axis=1, keepdims=True), extra]),
        np.hstack([z.sum(axis=1, keepdims=True), extra]),
        dy,
        pairs,
        len(x),
        length,
    )
    count = len(labelled)
    factors = _spread(fit, range(count), labelled, inputs, resolved)
    zeros = np.flatnonzero(free)
    slopes = _spread(
        fit,
        range(count, fit.value.size),
        np.append(zeros, zeros + inputs),
        2 * inputs,
        np.ones(2 * len(zeros), dtype=bool),
    )
    common = _spread(together, [0], np.arange(1), 1, np.array([all_resolved]))
    agreement = _single(_agreement(hood, pairs, y, dy, h.sum(axis=1), dx, weight), length)
    return Moments(factors, common, slopes, agreement)


def _instruments(hood: Neighbourhood, pairs: Pairs, g: Floats, dx: Floats, h: Floats) -> Floats:
    """ĝ Δx with ĝ a mean of other rows' labels, mixed per column to follow H best, [P, D]."""
    if not g.shape[1]:
        return h
    sizes = sorted({hood.blocks[0], hood.blocks[min(2, len(hood.blocks) - 1)], hood.blocks[-1]})
    surroundings = [_mean_of_mates(g, pairs.mates_a) + _mean_of_mates(g, pairs.mates_b)]
    surroundings += [_mean_of_block(g, pairs, size) for size in sizes]
    candidates = np.stack([0.5 * mean * dx for mean in surroundings], axis=2)  # [P, D, C]
    if len(hood.order) < ROWS_PER_COEFFICIENT * g.shape[1]:
        # Four numbers a column would fit the noise of H: four for all, columns in their own units
        # as none is known to be right.
        scale = np.sqrt((h**2).mean(axis=0))[:, None] + 1e-300
        scaled = (candidates / scale).reshape(-1, candidates.shape[2])
        mix = np.linalg.lstsq(scaled, (h / scale[:, 0]).ravel(), rcond=1e-6)[0]
        return candidates @ mix
    scale = np.sqrt((candidates**2).mean(axis=0)) + 1e-300
    candidates /= scale
    gram = np.einsum("pdc,pde->dce", candidates, candidates) / len(dx)
    gram += 1e-6 * np.eye(gram.shape[1])
    cross = np.einsum("pdc,pd->dc", candidates, h) / len(dx)
    mix = np.linalg.solve(gram, cross[..., None])[..., 0]
    return np.einsum("pdc,dc->pd", candidates, mix)


def _mean_of_mates(values: Floats, mates: np.ndarray) -> Floats:
    present = mates >= 0
    total = np.zeros((len(mates), *values.shape[1:]))
    for column in range(mates.shape[1]):
        here = present[:, column].reshape(-1, *[1] * (values.ndim - 1))
        total += np.where(here, values[mates[:, column]], 0.0)
    return total / present.sum(axis=1).reshape(-1, *[1] * (values.ndim - 1))


def _mean_of_block(g: Floats, pairs: Pairs, size: int) -> Floats:
    """The sum over both ends of the mean of the block around each, without the ends."""
    totals = g.reshape(-1, size, g.shape[1]).sum(axis=1)
    block_a, block_b = pairs.a // size, pairs.b // size
    same = (block_a == block_b)[:, None]
    ends = g[pairs.a], g[pairs.b]
    left_a = totals[block_a] - ends[0] - np.where(same, ends[1], 0.0)
    left_b = totals[block_b] - ends[1] - np.where(same, ends[0], 0.0)
    return (left_a + left_b) / (size - 1.0 - same)


def _resolved(pairs: Pairs, g: Floats, dx: Floats, n: int) -> tuple[Booleans, bool]:
    """Whether κ is clearly below ROUGHEST, for each column and for all together."""
    mate_a, mate_b = _mean_of_mates(g, pairs.mates_a), _mean_of_mates(g, pairs.mates_b)
    turn = (g[pairs.a] - g[pairs.b]) * (mate_a - mate_b) * dx**2
    stay = (g[pairs.a] + g[pairs.b]) * (mate_a + mate_b) * dx**2
    margin = ROUGHEST * stay - turn
    margin = np.column_stack([margin, margin.sum(axis=1)])
    error, _ = dyadic(margin, pairs.a, pairs.b, n)
    clear = margin.sum(axis=0) > CLEARLY_RESOLVED * error
    return clear[:-1], bool(clear[-1])


def _solve(h: Floats, z: Floats, dy: Floats, pairs: Pairs, n: int, length: float) -> Estimates:
    """Solve c = (Zᵀ H)⁻¹ Zᵀ Δy, with dyadic standard errors."""
    count = h.shape[1]
    unknown = Estimates(
        np.full(count, np.nan),
        np.full(count, np.inf),
        np.full(count, np.inf),
        np.zeros(count, dtype=bool),
        np.zeros(count),
        length,
    )
    if not count or n < ROWS_PER_COEFFICIENT * count:
        return unknown
    unit_h, unit_z = _root_mean_square(h), _root_mean_square(z)
    hs, zs = h / unit_h, z / unit_z
    a = zs.T @ hs
    left, singular, right = np.linalg.svd(a)
    held = singular > 1e-9 * singular[0]
    inverse = (right[held].T / singular[held]) @ left[:, held].T
    # A column that takes part in a direction left out cannot be told from another one.
    told = np.abs((right[held].T @ right[held]).diagonal() - 1.0) < 1e-6
    c = inverse @ (zs.T @ dy)
    influence = zs * (dy - hs @ c)[:, None] @ inverse.T
    error, effective = dyadic(influence, pairs.a, pairs.b, n)
    first = zs * hs
    first_error, _ = dyadic(first - first.mean(axis=0), pairs.a, pairs.b, n)
    strong = first.sum(axis=0) > STRENGTH * first_error
    moved = np.sqrt(((zs @ (c * _slope(zs, hs))) ** 2).mean()) + 1e-300
    part = _root_mean_square(zs * _slope(zs, hs))
    return Estimates(
        value=np.where(told, c / unit_h, np.nan),
        error=np.where(told, error / unit_h, np.inf),
        critical=_critical(effective * max(0.0, 1.0 - count / n)),
        usable=told & strong,
        share=part * unit_h / moved,
        length=length,
    )


def _slope(z: Floats, h: Floats) -> Floats:
    """Of H on z, column by column: z times it is the part of H that is no noise."""
    return (z * h).sum(axis=0) / ((z * z).sum(axis=0) + 1e-300)


def _root_mean_square(values: Floats) -> Floats:
    return np.sqrt((values**2).mean(axis=0)) + 1e-300


def dyadic(influence: Floats, a: np.ndarray, b: np.ndarray, n: int) -> tuple[Floats, Floats]:
    """Standard error of the sum of the influences [P, Q], and how many clusters carry it."""
    ends = np.concatenate([a, b])
    once = (influence**2).sum(axis=0)
    error, effective = np.empty_like(once), np.empty_like(once)
    for column, values in enumerate(influence.T):
        square = np.bincount(ends, np.concatenate([values, values]), minlength=n) ** 2
        total = square.sum()
        error[column] = np.sqrt(max(total - once[column], once[column]))
        effective[column] = total**2 / ((square**2).sum() + 1e-300)
    return error, effective


def _critical(effective: Floats) -> Floats:
    from scipy.special import stdtrit

    return -stdtrit(np.maximum(effective, 1.0), CRITICAL_PROBABILITY)


def _single(found: tuple[float, float, float, bool], length: float) -> Estimates:
    value, error, critical, usable = (np.array([part]) for part in found)
    return Estimates(value, error, critical, usable, np.ones(1), length)


def _spread(
    fit: Estimates, source: Sequence[int], target: np.ndarray, size: int, resolved: Booleans
) -> Estimates:
    """Put coefficients into an array over all inputs; those too rough are not usable."""
    part = fit.take(source)
    value, error = np.full(size, np.nan), np.full(size, np.inf)
    critical, share, usable = np.full(size, np.inf), np.zeros(size), np.zeros(size, dtype=bool)
    value[target], error[target], critical[target] = part.value, part.error, part.critical
    share[target], usable[target] = part.share, part.usable & resolved
    return Estimates(value, error, critical, usable, share, fit.length)


def _agreement(
    hood: Neighbourhood,
    pairs: Pairs,
    y: Floats,
    dy: Floats,
    h: Floats,
    dx: Floats,
    weight: Floats,
) -> tuple[float, float, float, bool]:
    """λ = E[z H] / E[z Δy], each less one linear function of x, with its error, critical, strength.

    z grows like Δy' up to its usual size and no further, so that a few cliffs do not decide alone.
    """
    n = len(y)
    if n < 20 * dx.shape[1]:
        return np.nan, np.inf, np.inf, False
    design = np.column_stack([np.ones(n), hood.x])
    slope = np.linalg.lstsq(design, y, rcond=None)[0][1:]
    bent = y - hood.x @ slope
    mates = (_mean_of_mates(bent, pairs.mates_b) - _mean_of_mates(bent, pairs.mates_a)) * weight
    z = mates / np.sqrt(mates**2 + np.median(mates**2) + 1e-300)
    dy, h = dy - dx @ slope, h - dx @ slope
    first = z * dy
    below = first.sum()
    if not below > 0:
        return np.nan, np.inf, np.inf, False
    value = float((z * h).sum() / below)
    influence = np.stack([z * (h - value * dy) / below, first - first.mean()], axis=1)
    error, effective = dyadic(influence, pairs.a, pairs.b, n)
    # Mates share rows with other pairs; they mostly lie in its leaf, and leaves share no row.
    leaves, _ = dyadic(influence, pairs.a // hood.leaf, pairs.b // hood.leaf, n)
    error = np.maximum(error, leaves)
    critical = float(_critical(effective[:1])[0])
    return value, float(error[0]), critical, bool(below > STRENGTH * error[1])
