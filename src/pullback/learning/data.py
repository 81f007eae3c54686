"""Rows with labels: values, and whatever is known of their derivatives."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from pullback.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class DifferentialData:
    """Inputs, values and derivatives, one row a sample; NaN in a label means unknown.

    Attributes:
        x: [N, D].
        y: [N, K].
        dydx: ∂y/∂x, [N, K, D], or None where no derivative is known.
        directions: v [N, D], for `dydv` and `hvp`.
        dydv: the directional derivative ∂y/∂x·v, [N, K].
        hvp: the second derivative along v, ∂²y/∂x² v, [N, K, D].
        sample_weight: [N]; factors on a row's share of the loss.
        dydx_weight: broadcastable to [N, K, D]; factors on the squared error of each derivative.
            One with a leading axis of N is cut by rows with the rest.

    Raises:
        ShapeError: shapes do not belong together.
        InputError: `dydv` or `hvp` without `directions`.

    >>> data = DifferentialData(torch.zeros(4, 2), torch.zeros(4, 1), torch.zeros(4, 1, 2))
    >>> data.take(torch.tensor([0, 2])).dydx.shape
    torch.Size([2, 1, 2])
    """

    x: Tensor
    y: Tensor
    dydx: Tensor | None = None
    directions: Tensor | None = None
    dydv: Tensor | None = None
    hvp: Tensor | None = None
    sample_weight: Tensor | None = None
    dydx_weight: Tensor | None = None

    def __post_init__(self) -> None:
        n, d = self.x.shape
        k = self.y.shape[-1]
        expected = {"y": (n, k), "dydx": (n, k, d), "directions": (n, d), "dydv": (n, k),
                    "hvp": (n, k, d), "sample_weight": (n,)}  # fmt: skip
        for name, shape in expected.items():
            tensor = getattr(self, name)
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ShapeError(
                    f"DifferentialData: expected {name} of shape {shape} for x of {(n, d)} and "
                    f"{k} outputs, got {tuple(tensor.shape)}"
                )
        if self.directions is None and (self.dydv is not None or self.hvp is not None):
            raise InputError("DifferentialData: dydv and hvp need the directions v they belong to")
        if self.dydx_weight is not None:
            _check_broadcast(self.dydx_weight, (n, k, d))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def second_order(self) -> bool:
        """Whether second derivatives are among the labels."""
        return self.hvp is not None

    def map(self, change: Callable[[Tensor], Tensor]) -> "DifferentialData":
        """The same with `change` applied to every tensor: a device, a dtype."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: change(t) for k, t in present.items() if t is not None})

    def take(self, rows: Tensor | slice) -> "DifferentialData":
        """Some rows, in the order given."""
        n = len(self)

        def cut(tensor: Tensor) -> Tensor:
            if tensor is self.dydx_weight and (tensor.ndim < 3 or len(tensor) != n):
                return tensor
            return tensor[rows]

        return self.map(cut)


def _check_broadcast(weight: Tensor, shape: tuple[int, int, int]) -> None:
    try:
        fits = torch.broadcast_shapes(weight.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"DifferentialData: expected dydx_weight broadcastable to [N, K, D] = {shape}, got "
            f"{tuple(weight.shape)}"
        )
