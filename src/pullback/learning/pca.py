"""The few directions along which the outputs move, found from derivatives.

NOTE [Differential PCA]
PCA keeps the directions in which x varies most, and may drop the one that y depends on.
Differential PCA keeps those in which y varies. With standardised inputs s = (x - m) / σ:

1. Whitening. E[s sᵀ] = P Λ Pᵀ; axes with Λ ≈ 0 are dropped: along them all x are the same. In
   u = Λ^-½ Pᵀ s the inputs are uncorrelated and of unit variance, so that slopes in all
   directions compare. Derivatives go by the inverse transpose, ∂y/∂u = Λ^½ Pᵀ σ ∂y/∂x.
2. Rotation. E[∂y/∂u ∂y/∂uᵀ] = Q R Qᵀ, eigenvalues R falling: R_c is the mean square slope
   along column c of Q, its relevance. Columns of little relevance are dropped.

Both are one linear map with a left inverse on what is kept,

    v = (x - m) Wᵀ,   W = Qᵀ Λ^-½ Pᵀ σ^-1       [C, D]  (components_)
    x ≈ m + v V,      V = Qᵀ Λ^½ Pᵀ σ           [C, D]  (inverse_components_),   W Vᵀ = 1,

    ∂y/∂v = ∂y/∂x Vᵀ,   and back, for a function of v alone,   ∂y/∂x = ∂y/∂v W.

As the kept v and the dropped ones are uncorrelated, m + v V is the linear regression of x on v.
The rows of W are the eigenvectors of E[z zᵀ] Cov(x), z = ∂y/∂x, scaled to Var(v_c) = 1. For one
basket, y = g(a·x), all z are multiples of a: one component remains, a·(x - m) / sd(a·x).

E[z zᵀ] is not centred: a direction in which y rises steadily matters as much as one in which
the slope changes. Several outputs count alike: each is divided by its own mean square slope.

Source: Huge & Savine, "Differential machine learning" (arXiv 2005.02347), appendix 2 and the
authors' notebook on differential PCA.
"""

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pullback.errors import InputError, ShapeError
from pullback.learning._given import Array, common_dtype, read, require_finite
from pullback.learning._moments import ROUNDING
from pullback.learning.arrays import Labels, as_inputs, as_labels, like_input


class DifferentialPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Reduce inputs to the directions along which the outputs move.

    See NOTE [Differential PCA] for the equations. A regression then runs in v, on derivatives
    carried there, and its gradient is carried back:

        v, dydv = pca.transform(x), pca.transform_gradient(dydx)
        value, slope = regression.fit(v, y, dydv).predict(pca.transform(new), True)
        greeks = pca.inverse_transform_gradient(slope)

    Args:
        n_components: C; None for all with a relevance of at least `min_relevance`, a fraction in
            (0, 1) for the fewest that hold this share of the relevance.
        min_relevance: share of the relevance below which a direction is dropped, where
            n_components is None.
        central: use the covariance of the derivatives instead of E[z zᵀ].

    Attributes:
        components_: W, [C, D], v = (x - mean_) Wᵀ; the largest entry of a row is positive.
        inverse_components_: V, [C, D], x ≈ mean_ + v V.
        relevance_ratio_: share of the mean square slope along each component, [C], falling.
        mean_: m, [D].
        n_components_: C.
        n_features_in_: D.
        feature_names_in_: where X was a frame.

    >>> x = np.array([[0.0, 0.0], [0.0, 10.0], [2.0, 0.0], [2.0, 10.0]])
    >>> pca = DifferentialPCA().fit(x, dydx=[[3.0, 0.0]] * 4)  # y = 3 x₀
    >>> pca.components_.tolist(), pca.relevance_ratio_.tolist()
    ([[1.0, 0.0]], [1.0])
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        min_relevance: float = 1e-4,
        central: bool = False,
    ) -> None:
        self.n_components = n_components
        self.min_relevance = min_relevance
        self.central = central

    def fit(self, X: object, y: object = None, dydx: object = None) -> "DifferentialPCA":
        """Find the components.

        Args:
            X: inputs, [N, D].
            y: values; only its shape and names are used.
            dydx: derivatives, [N, D] or [N, K, D]. A gradient with an unknown entry (NaN) is left
                out: in other coordinates none of it is known.

        Raises:
            InputError: no derivatives, none complete or all zero, X constant, or n_components out
                of range; and data as in `as_labels`.
        """
        api = f"{type(self).__name__}.fit"
        if dydx is None:
            raise InputError(
                f"{api} requires dydx, the derivatives that it is about, and got None: pass "
                "dydx=..., or use sklearn.decomposition.PCA, which looks at X alone"
            )
        self._check_parameters(api)
        labels = as_labels(api, X, y, dydx, estimator=self)
        self.mean_ = labels.x.mean(0, dtype=np.float64)
        whiten, unwhiten = _whitening(api, labels.x - self.mean_, labels)
        slopes = _complete_gradients(api, labels.dydx) @ unwhiten.T
        relevance, rotation = np.linalg.eigh(_second_moment(api, slopes, central=self.central))
        # eigh is rising, and rounding may leave a zero eigenvalue just below zero.
        ratio = relevance[::-1].clip(min=0.0) / relevance.sum()
        kept = self._count(api, ratio)
        rotation = rotation.T[::-1][:kept]
        sign = _signs(rotation @ whiten)
        self.components_ = sign * (rotation @ whiten)
        self.inverse_components_ = sign * (rotation @ unwhiten)
        self.relevance_ratio_ = ratio[:kept]
        self.n_components_ = kept
        return self

    def transform(self, X: object) -> Any:
        """Inputs in the new coordinates, v [N, C]."""
        check_is_fitted(self)
        api = f"{type(self).__name__}.transform"
        x = as_inputs(api, X, n_features=self.n_features_in_, estimator=self)
        return like_input(((x - self.mean_) @ self.components_.T).astype(x.dtype), X)

    def inverse_transform(self, X: object) -> Any:
        """Inputs [N, D] from coordinates v [N, C]; exact if no direction of x was dropped."""
        check_is_fitted(self)
        api = f"{type(self).__name__}.inverse_transform"
        v = as_inputs(api, X, n_features=self.n_components_)
        return like_input((self.mean_ + v @ self.inverse_components_).astype(v.dtype), X)

    def transform_gradient(self, dydx: object) -> Any:
        """Derivatives ∂y/∂v, [N, C] or [N, K, C], from ∂y/∂x, [N, D] or [N, K, D].

        A gradient with an unknown entry (NaN) is unknown throughout.
        """
        check_is_fitted(self)
        return self._carried("transform_gradient", "dydx", dydx, self.inverse_components_.T)

    def inverse_transform_gradient(self, dydv: object) -> Any:
        """Derivatives ∂y/∂x of a function of v, the shapes the other way round.

        Directions that were dropped have slope zero.
        """
        check_is_fitted(self)
        return self._carried("inverse_transform_gradient", "dydv", dydv, self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _carried(self, method: str, what: str, given: object, matrix: Array) -> Any:
        api = f"{type(self).__name__}.{method}"
        columns = read(api, what, given)
        values = columns.values
        if values.ndim not in (2, 3) or values.shape[-1] != len(matrix):
            raise ShapeError(
                f"{api}: expected {what} of shape [N, {len(matrix)}] or [N, K, {len(matrix)}], "
                f"got {values.shape}"
            )
        require_finite(api, what, values, columns.names, unknown=True)
        return like_input((values @ matrix).astype(common_dtype(columns)), given)

    def _check_parameters(self, api: str) -> None:
        wanted = self.n_components
        whole = isinstance(wanted, Integral) and not isinstance(wanted, bool) and wanted >= 1
        share = isinstance(wanted, Real) and not isinstance(wanted, Integral) and 0 < wanted < 1
        if not (wanted is None or whole or share):
            raise InputError(
                f"{api}: expected n_components None, an integer of at least 1 or a fraction in "
                f"(0, 1), got {wanted!r}"
            )
        if not 0 <= self.min_relevance < 1:
            raise InputError(f"{api}: expected min_relevance in [0, 1), got {self.min_relevance!r}")

    def _count(self, api: str, ratio: Array) -> int:
        wanted = self.n_components
        if wanted is None:
            return max(1, int((ratio >= self.min_relevance).sum()))
        if not isinstance(wanted, Integral):
            return min(int(np.searchsorted(ratio.cumsum(), wanted)) + 1, len(ratio))
        if wanted > len(ratio):
            raise InputError(
                f"{api}: n_components={wanted}, but X varies in {len(ratio)} directions only"
            )
        return int(wanted)


def _whitening(api: str, centred: Array, labels: Labels) -> tuple[Array, Array]:
    """Λ^-½ Pᵀ σ^-1 and Λ^½ Pᵀ σ, both [R, D], on the R axes along which x varies."""
    rounding = ROUNDING[labels.dtype]
    scale = np.sqrt(np.mean(centred**2, axis=0))
    constant = scale <= rounding * np.abs(labels.x).max(0)
    if constant.all():
        raise InputError(
            f"{api}: X of shape {labels.x.shape} (n_samples={len(labels.x)}) does not vary: it "
            "has no direction to keep"
        )
    standard = np.where(constant, 0.0, centred / np.where(constant, 1.0, scale))
    variance, axes = np.linalg.eigh(standard.T @ standard / len(standard))
    varies = variance > rounding * variance[-1]
    roots, axes = np.sqrt(variance[varies])[:, None], axes.T[varies]
    return (
        np.where(constant, 0.0, axes / roots / np.where(constant, 1.0, scale)),
        axes * roots * scale,
    )


def _complete_gradients(api: str, dydx: Array | None) -> Array:
    """Gradients with every entry known, in float64; the others all NaN, [N, K, D]."""
    assert dydx is not None
    known = ~np.isnan(dydx)
    complete = known.all(2, keepdims=True)
    if not complete.any():
        never = np.flatnonzero(~known.any((0, 1))).tolist()
        reason = f"inputs {never} have none at all: leave them out of X" if never else "none has"
        raise InputError(
            f"{api}: expected gradients with all derivatives known, as each counts in every new "
            f"direction; {reason}"
        )
    return np.where(complete, dydx, np.nan).astype(np.float64)


def _second_moment(api: str, slopes: Array, *, central: bool) -> Array:
    """E[z zᵀ] [R, R] of z [N, K, R], each output divided by its mean square slope."""
    total = np.zeros((slopes.shape[2], slopes.shape[2]))
    for k in range(slopes.shape[1]):
        z = slopes[~np.isnan(slopes[:, k, 0]), k]
        if central and len(z):
            z = z - z.mean(0)
        size = np.sum(z**2)
        if size > 0:
            total += z.T @ z / size
    if not total.any():
        raise InputError(f"{api}: all derivatives are zero, and no direction matters")
    return total


def _signs(components: Array) -> Array:
    """Signs that make the entry of largest size of each row positive, [C, 1]."""
    largest = np.abs(components).argmax(1)[:, None]
    return np.sign(np.take_along_axis(components, largest, axis=1))
