"""The differential loss: one number from errors in values and in derivatives.

NOTE [Differential loss]
Labels y [N, K] and z = ∂y/∂x [N, K, D], predictions ŷ and ẑ, any label unknown (NaN) anywhere.
Values are measured in their own standard deviation s_k, derivatives in their root mean square
1/λ_kj, both fixed from the training data:

    r_nk  = (ŷ_nk - y_nk) / s_k
    r_nkj = λ_kj (ẑ_nkj - z_nkj),     λ_kj = (s_xj / s_k) / sqrt(m_kj + ε max_j m_kj),

where m_kj is the mean square of z_kj s_xj / s_k, the derivative in standardised coordinates. The
loss is the weighted mean of all squared errors whose label is known,

    loss = (Σ_known r_nk² + λ Σ_known r_nkj²) / (N_values + λ N_derivatives).

With every label known, one output and ε = 0 this is Huge & Savine's
α·MSE(values) + β·mean_j MSE(λ_j derivatives) with α = 1/(1 + λD), β = 1 - α. The sum form says what
becomes of α and β when labels are missing: each known number counts once (or λ times), wherever it
is. The counts are those of the training set, taken once, so that the mean over mini-batches of
equal size is the loss over the whole: a batch that happens to hold few labels weighs less.

The floor ε: with ε = 0 a derivative that is (nearly) zero everywhere has λ_kj → ∞. An irrelevant
input gives NaN, one with rounding noise in its derivative drowns all others.

Directional labels (v, ∂y/∂v) are K numbers a row, second-order labels (v, ∂²y/∂x² v) K·D numbers;
they enter the same sum, each with its own inverse root mean square and the same floor.

The gradient in a weight θ is the sum over known labels of
2 r_nk/s_k ∂ŷ_nk/∂θ + 2λ λ_kj r_nkj ∂²f_k/∂x_j∂θ: a detached ẑ loses the second term.

Source: Huge & Savine 2020 (arXiv 2005.02347), section 2 and the authors' notebooks, but for ε and
the treatment of unknown labels, which are ours.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pullback.errors import InputError, ShapeError
from pullback.learning.data import DifferentialData
from pullback.learning.scaling import Scaling

# ε of the NOTE above. benchmarks/engineering.py shows what it does on nearly zero derivatives.
FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class DifferentialLoss:
    """Mean squared error over values and derivatives together. See NOTE [Differential loss].

    Build it with `from_data`; call it with predictions and labels of any batch. Fields hold the
    factors on squared errors.

    Attributes:
        value: 1/s_k², [K].
        derivative: λ λ_kj², [K, D].
        directional: factors on squared errors of ∂y/∂v, [K], or None.
        second: factors on squared errors of ∂²y/∂x² v, [K, D], or None.
        entries: expected sum of the factors' counts a row, that is (N_values + λ N_derivatives)/N.
    """

    value: Tensor
    derivative: Tensor | None
    directional: Tensor | None
    second: Tensor | None
    entries: float

    @classmethod
    def from_data(
        cls,
        x: Tensor,
        y: Tensor,
        dydx: Tensor | None = None,
        *,
        derivative_weight: float = 1.0,
        floor: float = FLOOR,
        directions: Tensor | None = None,
        dydv: Tensor | None = None,
        hvp: Tensor | None = None,
        second_order_weight: float = 1.0,
    ) -> "DifferentialLoss":
        """Fix the factors from training data, in whatever units the loss will be called with.

        Args:
            x: [N, D].
            y: [N, K] or [N]; NaN is unknown.
            dydx: [N, K, D], or [N, D] for one output; NaN is unknown.
            derivative_weight: λ, the weight of one derivative against one value.
            floor: ε, relative to the largest mean square derivative of the same output.
            directions: v [N, D].
            dydv: ∂y/∂v, [N, K] or [N].
            hvp: ∂²y/∂x² v, [N, K, D], or [N, D] for one output.
            second_order_weight: weight of one second-order number against one value.

        Raises:
            ShapeError: shapes do not belong together.
            InputError: a weight or the floor is negative, or no label is known at all.

        >>> x = torch.linspace(-1, 1, 5)[:, None]
        >>> loss = DifferentialLoss.from_data(x, x**2, 2 * x)
        >>> float(loss(x**2, x**2, 2 * x, 2 * x))
        0.0
        """
        y = _columns(y)
        along = None if dydv is None else _columns(dydv)
        data = DifferentialData(x, y, _jacobian(dydx, y), directions, along, _jacobian(hvp, y))
        return cls.of(data, derivative_weight, floor, second_order_weight)

    @classmethod
    def of(
        cls,
        data: DifferentialData,
        derivative_weight: float = 1.0,
        floor: float = FLOOR,
        second_order_weight: float = 1.0,
    ) -> "DifferentialLoss":
        """The same from a `DifferentialData`."""
        if min(derivative_weight, floor, second_order_weight) < 0:
            raise InputError("DifferentialLoss: expected weights and floor of at least 0")
        scaling = Scaling.from_data(data)
        slope = scaling.x_scale / scaling.y_scale[:, None]
        first = _factors(data.dydx, slope, floor, derivative_weight)
        along = (
            None
            if data.dydv is None
            else _factors(
                data.dydv.unsqueeze(-1), 1.0 / scaling.y_scale[:, None], floor, derivative_weight
            )
        )
        second = _factors(data.hvp, slope, floor, second_order_weight)
        entries = _known(data.y) + derivative_weight * (_known(data.dydx) + _known(data.dydv))
        entries += second_order_weight * _known(data.hvp)
        if entries == 0:
            raise InputError("DifferentialLoss: no label is known: every value is NaN")
        along = None if along is None else along[:, 0]
        return cls(scaling.y_scale**-2, first, along, second, entries)

    def to(
        self, dtype: torch.dtype, device: torch.device | str | None = None
    ) -> "DifferentialLoss":
        """The same in another dtype or on another device."""
        moved: dict[str, Any] = {
            name: tensor.to(dtype=dtype, device=device)
            for name, tensor in vars(self).items()
            if isinstance(tensor, Tensor)
        }
        return replace(self, **moved)

    def __call__(
        self,
        y_hat: Tensor,
        y: Tensor,
        dydx_hat: Tensor | None = None,
        dydx: Tensor | None = None,
        **more: Tensor | None,
    ) -> Tensor:
        """The loss of a batch of N rows: a mean over rows, so its size does not grow with N.

        Arguments and errors are those of `terms`, whose sum it is.
        """
        return torch.stack(list(self.terms(y_hat, y, dydx_hat, dydx, **more).values())).sum()

    def terms(
        self,
        y_hat: Tensor,
        y: Tensor,
        dydx_hat: Tensor | None = None,
        dydx: Tensor | None = None,
        *,
        dydv_hat: Tensor | None = None,
        dydv: Tensor | None = None,
        hvp_hat: Tensor | None = None,
        hvp: Tensor | None = None,
        sample_weight: Tensor | None = None,
        dydx_weight: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The parts that add up to the loss: value, derivative, directional, second_order.

        Args:
            y_hat: predictions [N, K].
            y: labels of the same shape; NaN is unknown.
            dydx_hat: predicted derivatives [N, K, D], with their graph.
            dydx: labels, [N, K, D], or [N, D] for one output.
            dydv_hat: predicted directional derivatives [N, K].
            dydv: labels of the same shape.
            hvp_hat: predicted second derivatives along v, [N, K, D].
            hvp: labels, shaped like dydx.
            sample_weight: factors on rows, [N].
            dydx_weight: factors on the squared errors of derivatives, broadcastable to [N, K, D].

        Raises:
            ShapeError: a prediction and its label differ in shape.
            InputError: a derivative prediction carries no graph although the values do, so that
                its loss would train nothing; or a kind of label was not in `from_data`.
        """
        kinds = {
            "value": (y_hat, y, self.value, None),
            "derivative": (dydx_hat, dydx, self.derivative, dydx_weight),
            "directional": (dydv_hat, dydv, self.directional, None),
            "second_order": (hvp_hat, hvp, self.second, None),
        }
        scale = 1.0 / (self.entries * max(len(y_hat), 1))
        terms = {}
        for kind, (predicted, label, factors, weight) in kinds.items():
            if label is not None:
                _check_term(kind, y_hat, predicted, factors)
                terms[kind] = scale * _squared_errors(
                    kind, predicted, label, factors, weight, sample_weight
                )
        return terms


def _check_term(kind: str, y_hat: Tensor, predicted: Tensor | None, factors: Tensor | None) -> None:
    if factors is None or predicted is None:
        missing = "a prediction" if predicted is None else "such labels in from_data"
        raise InputError(f"DifferentialLoss: {kind} labels were given without {missing}")
    if y_hat.requires_grad and not predicted.requires_grad and predicted.numel():
        raise InputError(
            f"DifferentialLoss: the {kind} predictions carry no graph, so this term would train no "
            "weight. They were detached, or computed under no_grad or without create_graph: use "
            "Twin(module), or autograd.grad(..., create_graph=True)."
        )


def _squared_errors(
    kind: str,
    predicted: Any,
    label: Tensor,
    factors: Any,
    weight: Tensor | None,
    sample_weight: Tensor | None,
) -> Tensor:
    """Σ factors · (predicted - label)² over known labels."""
    label = _same_shape(kind, predicted, label)
    unknown = label.isnan()
    # Masked before the subtraction: NaN times zero is NaN, also in the backward pass.
    error = torch.where(unknown, 0.0, predicted - torch.where(unknown, predicted.detach(), label))
    if error.shape[1:].numel() != factors.numel():
        raise ShapeError(
            f"DifferentialLoss: expected {kind} predictions for {len(factors)} outputs as in "
            f"from_data, got {tuple(predicted.shape)}"
        )
    squared = factors * error.square()
    if weight is not None:
        squared = squared * _fitting(weight, squared)
    if sample_weight is not None:
        if sample_weight.numel() != len(squared):
            raise ShapeError(
                f"DifferentialLoss: expected sample_weight of shape [N] = ({len(squared)},), got "
                f"{tuple(sample_weight.shape)}"
            )
        squared = squared * sample_weight.reshape(-1, *[1] * (squared.ndim - 1))
    return squared.sum()


def _fitting(weight: Tensor, squared: Tensor) -> Tensor:
    """The weight, if multiplying by it leaves the shape of the squared errors."""
    shape = tuple(squared.shape)
    if squared.ndim == 3 and shape[1] == 1 and weight.shape == (shape[0], shape[2]):
        return weight.unsqueeze(1)
    if weight.ndim > len(shape) or any(
        size not in (1, whole) for size, whole in zip(weight.shape[::-1], shape[::-1], strict=False)
    ):
        raise ShapeError(
            f"DifferentialLoss: expected dydx_weight broadcastable to [N, K, D] = {shape}, got "
            f"{tuple(weight.shape)}"
        )
    return weight


def _same_shape(kind: str, predicted: Tensor, label: Tensor) -> Tensor:
    """The label, with the axis of a single output put in; nothing else is broadcast."""
    one_output = predicted.ndim > 1 and predicted.shape[1] == 1
    if one_output and label.shape == predicted.shape[:1] + predicted.shape[2:]:
        return label.unsqueeze(1)
    if label.shape != predicted.shape:
        raise ShapeError(
            f"DifferentialLoss: expected {kind} predictions and labels of one shape, got "
            f"{tuple(predicted.shape)} and {tuple(label.shape)}"
        )
    return label


def _factors(label: Tensor | None, slope: Tensor, floor: float, weight: float) -> Tensor | None:
    """λ λ_kj² of the NOTE: inverse mean squares of the labels in standardised units, [K, D]."""
    if label is None:
        return None
    square = (label * slope).square().nanmean(0).nan_to_num(nan=0.0)
    largest = square.amax(1, keepdim=True)
    # All derivatives zero: there is no size to measure errors in but that of the values.
    bottom = torch.where(largest > 0, square + floor * largest, 1.0)
    # Without a floor, a derivative that is zero everywhere has no factor but infinity: none.
    bottom = torch.where(bottom > 0, bottom, torch.inf)
    return weight * slope.square() / bottom


def _known(label: Tensor | None) -> float:
    """How many numbers a row holds, on average."""
    return 0.0 if label is None else int((~label.isnan()).sum()) / max(len(label), 1)


def _columns(tensor: Tensor) -> Tensor:
    """[N] as [N, 1]."""
    return tensor.unsqueeze(1) if tensor.ndim == 1 else tensor


def _jacobian(tensor: Tensor | None, y: Tensor) -> Tensor | None:
    """[N, D] as [N, 1, D] where there is one output."""
    one = tensor is not None and tensor.ndim == 2 and y.shape[1] == 1
    return tensor.unsqueeze(1) if tensor is not None and one else tensor
