"""Standardised coordinates, and derivatives carried into them and back by the chain rule.

With x̂ = (x - m_x) / s_x and ŷ = (y - m_y) / s_y,

    ∂ŷ_k/∂x̂_j = ∂y_k/∂x_j · s_xj / s_yk,     ∂²ŷ_k/∂x̂² v̂ = ∂²y_k/∂x² v · s_xj / s_yk,  v̂ = v / s_x,

and the directional derivative along v, being a number per output, is only divided by s_yk.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pullback.learning.data import DifferentialData

# A spread below this share of the size of the numbers is rounding, not variation.
_ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-6}


@dataclass(frozen=True, eq=False)
class Scaling:
    """Shifts and scales of inputs and outputs.

    Attributes:
        x_shift: m_x, [D].
        x_scale: s_x, [D]; 0 marks an ignored input: constant, with no derivative known for it.
        y_shift: m_y, [K].
        y_scale: s_y, [K].
    """

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor

    @classmethod
    def from_data(cls, data: DifferentialData) -> "Scaling":
        """Means and standard deviations of the training rows, unknown labels left out.

        Singular cases, each with a meaning:

        * A constant output, or one with no known value, has scale 1 (or that of its derivatives).
        * A constant input says nothing of its own. If its derivative is known and is more than
          noise around zero (a price at one volatility, with its vega), its scale is the step
          that moves the output by one standard deviation. If not, it is ignored: it maps to 0
          and its predicted derivative is 0, so that a point a little off the constant cannot be
          thrown anywhere by weights that were never trained.

        >>> x = torch.tensor([[0.0, 5.0], [2.0, 5.0]], dtype=torch.float64)
        >>> Scaling.from_data(DifferentialData(x, x[:, :1])).x_scale
        tensor([1., 0.], dtype=torch.float64)
        """
        x_shift, spread = data.x.mean(0), data.x.std(0, correction=0)
        varies = spread > _ROUNDING.get(data.x.dtype, 1e-6) * data.x.abs().amax(0)
        y_shift, y_scale = _value_scale(data, torch.where(varies, spread, 0.0))
        x_scale = torch.where(varies, spread, _scale_of_constants(data, y_scale))
        return cls(x_shift, x_scale, y_shift, y_scale)

    @property
    def ignored(self) -> Tensor:
        """Which inputs are left out, [D]."""
        return self.x_scale == 0

    @property
    def x_inverse(self) -> Tensor:
        """1 / s_x, and 0 for an ignored input, [D]."""
        return torch.where(self.ignored, 0.0, 1.0 / self.x_scale.masked_fill(self.ignored, 1.0))

    def to(self, *, dtype: torch.dtype, device: torch.device | str | None = None) -> "Scaling":
        """The same in another dtype or on another device."""
        return Scaling(*(t.to(dtype=dtype, device=device) for t in self.tensors().values()))

    def tensors(self) -> dict[str, Tensor]:
        """The four tensors by name."""
        return {"x_shift": self.x_shift, "x_scale": self.x_scale,
                "y_shift": self.y_shift, "y_scale": self.y_scale}  # fmt: skip

    def scale(self, data: DifferentialData) -> DifferentialData:
        """Data in standardised coordinates."""
        slope = self.x_scale / self.y_scale[:, None]
        changed: dict[str, Any] = {
            "x": self.scale_x(data.x),
            "y": (data.y - self.y_shift) / self.y_scale,
            "dydx": None if data.dydx is None else data.dydx * slope,
            "directions": None if data.directions is None else data.directions * self.x_inverse,
            "dydv": None if data.dydv is None else data.dydv / self.y_scale,
            "hvp": None if data.hvp is None else data.hvp * slope,
        }
        return replace(data, **changed)

    def scale_x(self, x: Tensor) -> Tensor:
        """x̂ [N, D]."""
        return (x - self.x_shift) * self.x_inverse

    def unscale_y(self, y: Tensor) -> Tensor:
        """Y [N, K] in the user's units."""
        return y * self.y_scale + self.y_shift

    def unscale_dydx(self, dydx: Tensor) -> Tensor:
        """∂y/∂x [N, K, D] in the user's units."""
        return dydx * (self.y_scale[:, None] * self.x_inverse)

    def unscale_hessian(self, hessian: Tensor) -> Tensor:
        """∂²y/∂x² [N, K, D, D] in the user's units."""
        outer = self.x_inverse[:, None] * self.x_inverse
        return hessian * (self.y_scale[:, None, None] * outer)


def _value_scale(data: DifferentialData, spread: Tensor) -> tuple[Tensor, Tensor]:
    known = ~data.y.isnan()
    count = known.sum(0).clamp(min=1)
    shift = data.y.nan_to_num(nan=0.0).sum(0) / count
    centred = torch.where(known, data.y - shift, 0.0)
    scale = (centred.square().sum(0) / count).sqrt()
    size = data.y.abs().nan_to_num(nan=0.0).amax(0)
    flat = scale <= _ROUNDING.get(data.y.dtype, 1e-6) * size
    fallback = torch.ones_like(scale)
    if data.dydx is not None:
        # No spread of values to go by: the change across the inputs' spread, by the derivatives.
        change = _rms(data.dydx * spread, dim=(0, 2))
        fallback = torch.where(change > 0, change, fallback)
    return shift, torch.where(flat, fallback, scale)


def _scale_of_constants(data: DifferentialData, y_scale: Tensor) -> Tensor:
    """Scales that known derivatives give to constant inputs; 0 where they give none, [D]."""
    if data.dydx is None:
        return torch.zeros_like(data.x[0])
    relative = data.dydx / y_scale[:, None]
    size = _rms(relative, dim=0)
    # Derivative labels that average out to under a tenth of their size are taken for noise.
    steady = relative.nanmean(0).nan_to_num(nan=0.0).abs() > 0.1 * size
    slope = torch.where(steady, size, 0.0).amax(0)
    return torch.where(slope > 0, 1.0 / slope.masked_fill(slope == 0, 1.0), 0.0)


def _rms(tensor: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Root mean square of the known entries; 0 where none is known."""
    return tensor.square().nanmean(dim).nan_to_num(nan=0.0).sqrt()
