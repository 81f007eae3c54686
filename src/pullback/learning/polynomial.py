"""Polynomial regression on values and derivatives, solved in closed form.

NOTE [Differential regression]
With standardised inputs u = (x - m_x) / s_x and monomials φ_p(u), the model is

    y_k = m_k + s_k φ(u)·β_k,     ∂y_k/∂x_j = s_k/s_xj ∂_jφ(u)·β_k,

both linear in the same β_k. In standardised labels, ŷ = (y - m_k) / s_k and ẑ_j = z_j s_xj / s_k,
the fit of output k minimises

    Σ_n w_n ( (φ(u_n)·β - ŷ_n)² + λ Σ_j c_j v_nj (∂_jφ(u_n)·β - ẑ_nj)² ) + ρ Σ_n w_n Σ_{p>0} β_p²

over what is known: an unknown label, value or single derivative, has no equation. The factor

    c_j = E[ŷ²] / (E[ẑ_j²] + ε max_i E[ẑ_i²]),    E[ŷ²] = 1,

puts values and each derivative on an equal footing. Huge & Savine (2020) have ε = 0 and raw labels:
then a derivative that is zero everywhere has weight ∞, and an offset of y raises all weights.

Every known label is one row of a least-squares problem with P columns. Rows come in chunks; each
chunk is stacked under the triangle R of those before and a QR makes one triangle of both. So no
array of size N × P × D exists, and the condition number is not squared as by normal equations.
Rank-deficient problems (a constant or doubled input, fewer labels than terms) have the solution of
least norm. With no value known at all the constant is undetermined: it is left at 0.

Source: Huge & Savine, "Differential machine learning" (arXiv 2005.02347), appendix 3 and the
authors' notebook on differential regression.
"""

from collections.abc import Iterator
from math import isfinite
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from pullback.errors import InputError
from pullback.learning._given import Array
from pullback.learning._moments import Moments, rms
from pullback.learning._monomials import Monomials, term_count
from pullback.learning.arrays import Labels, as_inputs, as_labels, like_input

# Entries of the largest block that is factorised at once: 32 MiB of float64.
_BLOCK = 2**22


class DifferentialPolynomialRegression(RegressorMixin, BaseEstimator):
    """Least squares on values and derivatives with all monomials up to a degree.

    See NOTE [Differential regression] for the equations. Unknown labels are NaN. A useful first
    answer, and a hard one to beat, up to about seven inputs; the number of terms grows as D^degree.

    Args:
        degree: of the polynomial, at least 1.
        derivative_weight: λ, of the derivatives against the values; 0 ignores them.
        ridge: ρ, penalty on the standardised coefficients but the constant, per row.
        floor: ε, keeps derivatives that are nearly zero from an infinite weight.
        max_terms: P above which the fit is refused: time grows as N·D·P², memory as P².

    Attributes:
        coef_: β, of standardised inputs and outputs, [P] for y [N], else [K, P].
        exponents_: of the terms, [P, D].
        rank_: of the least-squares problem of each output, [K].
        n_features_in_: D.
        feature_names_in_: where X was a frame.

    >>> x = np.linspace(-1.0, 1.0, 3)[:, None]
    >>> model = DifferentialPolynomialRegression(degree=5).fit(x, x[:, 0] ** 5, 5.0 * x**4)
    >>> value, slope = model.predict([[0.5]], return_gradient=True)
    >>> value.round(9).tolist(), slope.round(9).tolist()  # 1/32 and 5/16, from three rows
    ([0.03125], [[0.3125]])
    """

    def __init__(
        self,
        degree: int = 3,
        *,
        derivative_weight: float = 1.0,
        ridge: float = 0.0,
        floor: float = 1e-3,
        max_terms: int = 3000,
    ) -> None:
        self.degree = degree
        self.derivative_weight = derivative_weight
        self.ridge = ridge
        self.floor = floor
        self.max_terms = max_terms

    def fit(
        self,
        X: object,
        y: object,
        dydx: object = None,
        *,
        sample_weight: object = None,
        dydx_weight: object = None,
    ) -> "DifferentialPolynomialRegression":
        """Solve for the coefficients.

        Args:
            X: inputs, [N, D].
            y: values, [N] or [N, K], NaN = unknown.
            dydx: derivatives, [N, D] for one output, [N, K, D], a frame or a mapping, NaN =
                unknown.
            sample_weight: w, [N]; a weight of 2 is the same as the row given twice.
            dydx_weight: v, broadcasts to [N, K, D].

        Raises:
            InputError: parameters out of range, too many terms, or data as in `as_labels`.
        """
        api = f"{type(self).__name__}.fit"
        self._check_parameters(api)
        labels = as_labels(
            api, X, y, dydx, sample_weight=sample_weight, dydx_weight=dydx_weight, estimator=self
        )
        self._check_terms(api, labels.x.shape[1])
        self._moments = Moments.of(labels)
        self._basis = Monomials(labels.x.shape[1], self.degree)
        self.exponents_ = self._basis.exponents
        self._beta, self.rank_ = self._solve(labels)
        self._single = labels.single_output
        self.coef_ = self._beta[:, 0] if self._single else self._beta.T
        return self

    def predict(self, X: object, return_gradient: bool = False) -> Any:
        """Values at X [N, D], and with `return_gradient` also the derivatives.

        Returns:
            y, [N] or [N, K] as y was in `fit`; or (y, dydx), dydx [N, D] or [N, K, D].
        """
        check_is_fitted(self)
        api = f"{type(self).__name__}.predict"
        x = as_inputs(api, X, n_features=self.n_features_in_, estimator=self)
        u = self._moments.standardise(x)
        outputs = self._beta.shape[1]
        coefficients = self._beta
        if return_gradient:
            slopes = self._basis.derivative_coefficients(self._beta)
            coefficients = np.hstack([self._beta, slopes.reshape(len(slopes), -1)])
        result = np.vstack([phi @ coefficients for phi, _ in self._chunks(u, 1)])
        y = self._moments.unscale_y(result[:, :outputs])
        value = self._returned(y, x, X)
        if not return_gradient:
            return value
        dydx = self._moments.unscale_dydx(result[:, outputs:].reshape(len(x), outputs, -1))
        return value, self._returned(dydx, x, X)

    def predict_gradient(self, X: object) -> Any:
        """Derivatives at X [N, D]: [N, D], or [N, K, D] if y had the axis K in `fit`."""
        return self.predict(X, return_gradient=True)[1]

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """R² of the values, the mean over outputs; unknown values (NaN) are left out."""
        labels = as_labels(f"{type(self).__name__}.score", X, y, sample_weight=sample_weight)
        predicted = np.reshape(np.asarray(self.predict(X)), labels.y.shape)
        scores = []
        for k in range(labels.y.shape[1]):
            known = ~np.isnan(labels.y[:, k])
            weight = None if labels.sample_weight is None else labels.sample_weight[known]
            scores.append(r2_score(labels.y[known, k], predicted[known, k], sample_weight=weight))
        return float(np.mean(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_parameters(self, api: str) -> None:
        for name, least in (("degree", 1), ("max_terms", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InputError(f"{api}: expected an integer {name} of at least 1, got {value!r}")
        for name in ("derivative_weight", "ridge", "floor"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise InputError(f"{api}: expected a finite {name} of at least 0, got {value!r}")

    def _check_terms(self, api: str, inputs: int) -> None:
        terms = term_count(inputs, self.degree)
        if terms <= self.max_terms:
            return
        fits = max(
            (d for d in range(1, self.degree) if term_count(inputs, d) <= self.max_terms), default=0
        )
        lower = f"degree={fits} ({term_count(inputs, fits)} terms), " if fits else ""
        raise InputError(
            f"{api}: degree={self.degree} in {inputs} inputs has {terms} terms, more than "
            f"max_terms={self.max_terms}. Use {lower}fewer inputs (DifferentialPCA finds the "
            "directions that matter), DifferentialRegressor, or a larger max_terms"
        )

    def _solve(self, labels: Labels) -> tuple[Array, Array]:
        u = self._moments.standardise(labels.x)
        target, root = _equations(labels, self._moments, self.derivative_weight, self.floor)
        terms, outputs = len(self.exponents_), target.shape[1]
        beta, rank = np.empty((terms, outputs)), np.empty(outputs, dtype=int)
        for group in _equal_columns(root):
            triangle = self._triangle(u, root[:, group[0]], target[:, group])
            if self.ridge:
                penalty = np.sqrt(self.ridge * self._moments.weight.sum()) * np.eye(terms)[1:]
                zeros = np.zeros((terms - 1, len(group)))
                triangle = np.vstack([triangle, np.hstack([penalty, zeros])])
            solution = np.linalg.lstsq(triangle[:, :terms], triangle[:, terms:], rcond=None)
            beta[:, group], rank[group] = solution[0], solution[2]
        return beta, rank

    def _triangle(self, u: Array, root: Array, target: Array) -> Array:
        """R [≤ P + G, P + G] of all equations with G right-hand sides, chunk by chunk."""
        triangle = np.empty((0, len(self.exponents_) + target.shape[1]))
        for phi, rows in self._chunks(u, root.shape[1]):
            blocks = [triangle]
            for e in range(root.shape[1]):
                weight = root[rows, e, None]
                if weight.any():
                    design = phi if e == 0 else self._basis.derivative(phi, e - 1)
                    blocks.append(np.hstack([weight * design, weight * target[rows, :, e]]))
            triangle = np.asarray(np.linalg.qr(np.vstack(blocks), mode="r"))
        return triangle

    def _chunks(self, u: Array, equations: int) -> Iterator[tuple[Array, slice]]:
        """φ of some rows, so that `equations` blocks of them stay within bounds."""
        terms = len(self.exponents_)
        # At least twice as many rows as the triangle has, or factorising that again dominates.
        rows = max(_BLOCK // terms, 2 * terms) // equations + 1
        for start in range(0, len(u), rows):
            chunk = slice(start, start + rows)
            yield self._basis.values(u[chunk]), chunk

    def _returned(self, result: Array, x: Array, X: object) -> Any:
        return like_input((result[:, 0] if self._single else result).astype(x.dtype), X)


def _equations(
    labels: Labels, moments: Moments, derivative_weight: float, floor: float
) -> tuple[Array, Array]:
    """Targets and square roots of weights, [N, K, 1 + D]: the value, then each derivative."""
    y = moments.scale_y(labels.y)
    target, factor = y[..., None], np.broadcast_to(moments.weight[:, None, None], (*y.shape, 1))
    if labels.dydx is not None and derivative_weight > 0:
        z = moments.scale_dydx(labels.dydx)
        square = rms(z, moments.weight) ** 2
        bottom = square + floor * square.max(1, keepdims=True)
        balance = derivative_weight / np.where(bottom > 0, bottom, 1.0)
        own = np.ones(1) if labels.dydx_weight is None else labels.dydx_weight
        slopes = np.broadcast_to(moments.weight[:, None, None] * balance * own, z.shape)
        target, factor = np.concatenate([target, z], 2), np.concatenate([factor, slopes], 2)
    known = ~np.isnan(target)
    return np.where(known, target, 0.0), np.sqrt(np.where(known, factor, 0.0))


def _equal_columns(root: Array) -> list[list[int]]:
    """Outputs whose equations differ in their right-hand sides only: one factorisation each."""
    groups: list[list[int]] = []
    for k in range(root.shape[1]):
        same = (g for g in groups if np.array_equal(root[:, g[0]], root[:, k]))
        group = next(same, None)
        if group is None:
            groups.append([k])
        else:
            group.append(k)
    return groups
