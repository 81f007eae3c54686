"""The loss and its gradient by compiled code, for small networks on a CPU.

The equations are those of NOTE [Twin backward].
"""

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.native.build import library
from pullback.learning.networks import MLP, Twin

# The kernel's numbers for the activations it has.
ACTIVATIONS = {"softplus": 0, "tanh": 1, "silu": 2, "sin": 3, "sigmoid": 4}
# Above this width the products of a matrix library win over keeping a block of rows in cache:
# measured, 1.8 times as fast at 128, half as fast at 256 (rows 1,024, one thread).
WIDEST = 128

_NAMES = {torch.float32: "float32", torch.float64: "float64"}
_C_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def is_possible(twin: Twin, data: DifferentialData) -> bool:
    """Whether the compiled step is there and can train this network on these labels."""
    net = twin.module
    return (
        library() is not None
        and type(net) is MLP
        and net.is_bare
        and net.activation.known
        and net.activation.name in ACTIVATIONS
        and len(net.layers) > 1
        and max(net.widths[:-1]) <= WIDEST
        and all(p.requires_grad for p in net.parameters())
        and data.x.device.type == "cpu"
        and data.x.dtype in _NAMES
        and data.dydv is None
        and data.hvp is None
    )


class Kernel:
    """The compiled code, bound to one network and one training set.

    Weights of the network become views of one flat tensor, which the kernel changes in place.

    Args:
        twin: around an `MLP`.
        loss: what is minimised.
        data: standardised training rows.
    """

    def __init__(self, twin: Twin, loss: DifferentialLoss, data: DifferentialData) -> None:
        net = twin.module
        assert isinstance(net, MLP)
        self.dtype = data.x.dtype
        self.parameters, self.flat = _flatten(net)
        self.entries = loss.entries
        hidden = net.widths[1:-1]
        self._hidden = torch.tensor(hidden, dtype=torch.int64)
        self._shape = (net.inputs, net.outputs, len(hidden))
        self._activation = ACTIVATIONS[net.activation.name]
        self._omega = ctypes.c_double(net.omega_0)
        rows = data.sample_weight
        y, value_weight = _known(data.y, None if rows is None else rows[:, None])
        dydx, derivative_weight = None, None
        if data.dydx is not None:
            rows = None if rows is None else rows[:, None, None]
            dydx, derivative_weight = _known(data.dydx, rows, data.dydx_weight)
        # Kept here: the kernel is given their addresses.
        self._data = [data.x.contiguous(), y, dydx, value_weight, derivative_weight]
        self._factors = [loss.value.contiguous(), _contiguous(loss.derivative)]

    def epoch(
        self,
        order: Tensor,
        bounds: Tensor,
        rates: Tensor,
        decay: float,
        step: int,
        first: Tensor,
        second: Tensor,
    ) -> tuple[float, float]:
        """All steps of an epoch; sums of the value and derivative terms met on the way."""
        losses = torch.zeros(2, dtype=torch.float64)
        self._function("epoch")(
            *self._problem(), _at(order), _at(bounds), ctypes.c_int64(len(rates)), _at(rates),
            ctypes.c_double(self.entries), ctypes.c_double(decay), ctypes.c_int64(step),
            _at(self.flat), _at(first), _at(second), _at(losses),
        )  # fmt: skip
        value, derivative = losses.tolist()
        return value, derivative

    def gradient(self, order: Tensor) -> tuple[Tensor, float, float]:
        """Gradient of the loss over some rows in all weights, flat, and its two terms."""
        losses, gradient = torch.zeros(2, dtype=torch.float64), torch.empty_like(self.flat)
        self._function("gradient")(
            *self._problem(), _at(order), ctypes.c_int64(len(order)),
            ctypes.c_double(self.entries), _at(self.flat), _at(gradient), _at(losses),
        )  # fmt: skip
        value, derivative = losses.tolist()
        return gradient, value, derivative

    def _function(self, what: str) -> Any:
        function = getattr(library(), f"pullback_{what}_{_NAMES[self.dtype]}")
        function.restype = None
        return function

    def _problem(self) -> list[Any]:
        shape = [ctypes.c_int64(number) for number in self._shape]
        return [*shape, _at(self._hidden), ctypes.c_int64(self._activation), self._omega,
                *map(_at, self._data), *map(_at, self._factors)]  # fmt: skip


def _flatten(net: MLP) -> tuple[list[nn.Parameter], Tensor]:
    """Weights and biases, layer by layer, in one tensor; the network's become views of it."""
    layers = [cast(nn.Linear, layer) for layer in net.layers]
    parameters = [cast(nn.Parameter, p) for layer in layers for p in (layer.weight, layer.bias)]
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for parameter, part in zip(parameters, _parts(flat, parameters), strict=True):
        parameter.data = part
    return parameters, flat


def _parts(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]


def _known(label: Tensor, *factors: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Labels with zeros for the unknown, and the weight of each; None where all weigh one."""
    present = [f for f in factors if f is not None]
    unknown = label.isnan()
    if not present and not unknown.any():
        return label.contiguous(), None
    weight = (~unknown).to(label.dtype)
    for factor in present:
        weight = weight * factor
    return label.nan_to_num(nan=0.0).contiguous(), weight.contiguous()


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _at(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
