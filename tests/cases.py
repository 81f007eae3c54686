"""One table of cases feeds every derivative test; a new layer is one record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import pullback.derivatives as d
from pullback.errors import (
    DtypeError,
    GradientError,
    InputError,
    ShapeError,
    UnconnectedInputError,
)

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function with inputs.

    Attributes:
        build: makes f.
        rows: the shape of a row of each input, *D, in the container that f is called with.
        outputs: *K.
        keys: which inputs are differentiated; (None,) for a bare tensor.
        couples: whether rows depend on each other.
        smooth: whether the second derivative says something (ReLU's does not).
    """

    name: str
    build: Callable[[], Function]
    rows: Any
    outputs: tuple[int, ...]
    keys: tuple[int | str | None, ...] = (None,)
    couples: bool = False
    smooth: bool = True

    def make(self, rows: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Function, Any]:
        """The function and x; the same for the same arguments."""
        torch.manual_seed(1)
        f = self.build()
        if isinstance(f, nn.Module):
            f = f.to(dtype)
        return f, self.inputs(rows, dtype)

    def inputs(self, rows: int, dtype: torch.dtype) -> Any:
        def draw(shape: Any) -> Tensor:
            if shape == "ids":
                return torch.randint(0, 4, (rows,))
            return torch.randn(rows, *shape, dtype=dtype)

        if isinstance(self.rows, dict):
            return {key: draw(shape) for key, shape in self.rows.items()}
        if isinstance(self.rows, list):
            return tuple(draw(shape) for shape in self.rows)
        return draw(self.rows)

    def parameters(self) -> list[Tensor]:
        """The weights of f; none if it is a plain function."""
        f = self.build()
        return list(f.parameters()) if isinstance(f, nn.Module) else []

    @property
    def scalar(self) -> bool:
        """One output a row."""
        return self.outputs in ((), (1,))

    def __str__(self) -> str:
        return self.name


def mlp(inputs: int, outputs: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, outputs)
    )


class Squeezed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3, 1, nn.Softplus)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1)


class Attention(nn.Module):
    """Rows [4, 8]: attention runs over the four positions of each row."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)).mean(1)


class FusedAttention(nn.Module):
    """scaled_dot_product_attention itself, whose fused kernels have no second derivative."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x.tanh(), x).sin().sum((1, 2))


class InstanceNorm(nn.Module):
    """Normalised over the last dimension of each row, with a channel's own weight and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.InstanceNorm1d(2, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh().square().sum(2)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class Categories(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 2)
        self.net = mlp(5, 1)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        return self.net(torch.cat([self.table(ids), x], 1))


class Option(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(4, 2)

    def forward(self, spot: Tensor, rate: Tensor) -> Tensor:
        return self.net(torch.cat([spot, rate[:, None]], 1))


class NumpyBackward(torch.autograd.Function):
    """Exact, but its backward leaves torch: it can be neither batched nor differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(grad.numpy() * np.exp(x.numpy()))


def conv(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(75, outputs)
    )


CASES = [
    Case("mlp", lambda: mlp(3, 1), (3,), (1,)),
    Case("mlp [N]", Squeezed, (3,), ()),
    Case("mlp K=4", lambda: mlp(3, 4), (3,), (4,)),
    Case("mlp K=2x3", lambda: nn.Sequential(mlp(3, 6), nn.Unflatten(1, (2, 3))), (3,), (2, 3)),
    Case("mlp relu", lambda: mlp(3, 1, nn.ReLU), (3,), (1,), smooth=False),
    Case("in place", lambda: nn.Sequential(nn.ELU(inplace=True), mlp(3, 2)), (3,), (2,)),
    Case("conv", lambda: conv(1), (2, 5, 5), (1,)),
    Case("conv K=3", lambda: conv(3), (2, 5, 5), (3,)),
    Case("layer norm", lambda: nn.Sequential(mlp(3, 4), nn.LayerNorm(4)), (3,), (4,)),
    Case("norm", lambda: nn.Sequential(mlp(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)), (3,), (1,)),
    Case("instance norm", InstanceNorm, (2, 4), (2,)),
    Case("rms norm", lambda: nn.Sequential(mlp(3, 4), nn.RMSNorm(4)), (3,), (4,)),
    Case("group norm", lambda: nn.Sequential(mlp(3, 6), nn.GroupNorm(2, 6)), (3,), (6,)),
    Case("batch norm eval", lambda: nn.Sequential(nn.BatchNorm1d(3), mlp(3, 1)).eval(), (3,), (1,)),
    Case("attention", lambda: Attention().eval(), (4, 8), (2,)),
    Case("fused attention", FusedAttention, (4, 8), ()),
    Case("lstm", Recurrent, (4, 3), (4,)),
    Case("categories", Categories, ["ids", (3,)], (1,), keys=(1,)),
    Case("dict", Option, {"spot": (3,), "rate": ()}, (2,), keys=("spot", "rate")),
    Case("tuple", lambda: lambda a, b: (a * b).sum(1) + a[:, 0] ** 3, [(3,), (3,)], (), (0, 1)),
    Case("sin", lambda: lambda x: torch.sin(x).sum(1), (3,), ()),
    Case("exp elementwise", lambda: torch.exp, (3,), (3,)),
    Case("numbers", lambda: lambda x: x**3, (), ()),
    Case("numpy backward", lambda: lambda x: NumpyBackward.apply(x), (3,), (3,), smooth=False),
]

COUPLED = [
    Case(
        "batch norm train",
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
        (3,),
        (1,),
        couples=True,
    ),
    Case(
        "batch norm 2d",
        lambda: nn.Sequential(nn.BatchNorm2d(2), conv(1)),
        (2, 5, 5),
        (1,),
        couples=True,
    ),
    Case("mean", lambda: lambda x: x.sum(1) - x.mean(), (3,), (), couples=True),
    Case("cumsum", lambda: lambda x: x.cumsum(0), (3,), (3,), couples=True),
    Case("cumsum back", lambda: lambda x: x.flip(0).cumsum(0).flip(0), (3,), (3,), couples=True),
    Case("softmax", lambda: lambda x: x.softmax(0), (3,), (3,), couples=True),
    Case("roll", lambda: lambda x: x * x.roll(1, 0), (3,), (3,), couples=True),
    Case("largest", lambda: lambda x: x / x.abs().amax(0), (1,), (1,), couples=True),
    Case("smallest", lambda: lambda x: x - x.amin(0), (1,), (1,), couples=True),
    Case(
        "pairs",
        lambda: lambda x: x.reshape(-1, 2, 3).softmax(1).reshape(-1, 3),
        (3,),
        (3,),
        couples=True,
    ),
    Case("halves", lambda: lambda x: x * x.roll(len(x) // 2, 0), (3,), (3,), couples=True),
    Case("attention over rows", lambda: Attention(False).eval(), (4, 8), (2,), couples=True),
    Case("as many outputs as rows", lambda: lambda x: x.mean(0), (6,), (), couples=True),
]

SCALAR = [case for case in CASES if case.scalar]
TWICE = [case for case in SCALAR if case.keys == (None,)]


@dataclass(frozen=True)
class BadInput:
    """A call that must be refused, and words that the message must have."""

    name: str
    call: Callable[[], object]
    error: type[Exception]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def _ones(*shape: int) -> Tensor:
    return torch.ones(shape)


def _row_sum(x: Tensor) -> Tensor:
    return x.sum(1)


BAD_INPUTS = [
    BadInput(
        "numpy array",
        lambda: d.value_and_gradient(_row_sum, np.ones((3, 2))),
        InputError,
        ("value_and_gradient: expected x to be a tensor [N, *D]", "numpy.ndarray", "as_tensor"),
    ),
    BadInput(
        "list",
        lambda: d.value_and_jacobian(_row_sum, [_ones(3, 2)]),
        InputError,
        ("value_and_jacobian:", "got a list", "tuple(x)", "torch.stack(x)"),
    ),
    BadInput(
        "empty tuple",
        lambda: d.value_and_jacobian(_row_sum, ()),
        InputError,
        ("at least one input", "empty tuple"),
    ),
    BadInput(
        "scalar",
        lambda: d.value_and_gradient(torch.sin, torch.tensor(1.0)),
        ShapeError,
        ("one row a sample, got a scalar", "x.reshape(1, -1)"),
    ),
    BadInput(
        "rows differ",
        lambda: d.value_and_gradient(torch.mul, (_ones(3, 1), _ones(4, 1))),
        ShapeError,
        ("same number of rows", "x[0] [3, 1], x[1] [4, 1]", "close over it"),
    ),
    BadInput(
        "rows differ, named",
        lambda: d.value_and_gradient(torch.mul, {"a": _ones(3), "b": _ones(1)}),
        ShapeError,
        ("x['a'] [3], x['b'] [1]",),
    ),
    BadInput(
        "integer input",
        lambda: d.value_and_gradient(_row_sum, torch.ones(3, 2, dtype=torch.long)),
        DtypeError,
        ("x is torch.int64, which cannot carry a derivative", "x.float()"),
    ),
    BadInput(
        "integer input asked for",
        lambda: d.value_and_gradient(torch.mul, (_ones(3), torch.arange(3)), wrt=1),
        DtypeError,
        ("x[1] is torch.int64", "leave it out of wrt"),
    ),
    BadInput(
        "complex input",
        lambda: d.value_and_gradient(_row_sum, torch.ones(3, 2, dtype=torch.complex64)),
        DtypeError,
        ("x is torch.complex64", "real and imaginary parts"),
    ),
    BadInput(
        "complex input among others",
        lambda: d.value_and_gradient(torch.mul, (_ones(3), _ones(3).to(torch.complex64))),
        DtypeError,
        ("x[1] is torch.complex64",),
    ),
    BadInput(
        "complex output",
        lambda: d.value_and_jacobian(lambda x: x + 1j, _ones(3, 2)),
        DtypeError,
        ("f returns torch.complex64", "view_as_real"),
    ),
    BadInput(
        "integer output",
        lambda: d.value_and_gradient(lambda x: x.argmax(1), _ones(3, 2)),
        DtypeError,
        ("f returns torch.int64", "argmax"),
    ),
    BadInput(
        "tuple output",
        lambda: d.value_and_gradient(lambda x: (x, x), _ones(3, 1)),
        InputError,
        ("f to return one tensor", "got tuple", "f(x)[0]"),
    ),
    BadInput(
        "mean over rows",
        lambda: d.value_and_gradient(lambda x: x.square().mean(), _ones(3, 2)),
        ShapeError,
        ("N = 3, got a scalar", "averages or sums over rows", "reduction='none'", "never 1/N"),
    ),
    BadInput(
        "mean over one row",
        lambda: d.value_and_gradient(lambda x: x.square().mean(), _ones(1, 2)),
        ShapeError,
        ("N = 1, got a scalar", "reduction='none'"),
    ),
    BadInput(
        "mean over rows, kept",
        lambda: d.value_and_jacobian(lambda x: x.mean(0, keepdim=True), _ones(3, 2)),
        ShapeError,
        ("N = 3, got [1, 2]", "reduction='none'"),
    ),
    BadInput(
        "several outputs",
        lambda: d.value_and_gradient(torch.sin, _ones(3, 2)),
        ShapeError,
        ("one number a row, [N] or [N, 1], got [3, 2]", "value_and_jacobian", "f(x)[:, 0]"),
    ),
    BadInput(
        "several outputs, second order",
        lambda: d.value_gradient_and_hvp(torch.sin, _ones(3, 2), _ones(3, 2)),
        ShapeError,
        ("value_gradient_and_hvp: expected f to return one number a row",),
    ),
    BadInput(
        "wrong direction",
        lambda: d.value_and_directional(_row_sum, _ones(3, 2), _ones(2, 3)),
        ShapeError,
        ("the direction v to have the shape of its input, [3, 2], or of one row, [2], got [2, 3]",),
    ),
    BadInput(
        "direction of another input",
        lambda: d.value_and_directional(
            torch.mul, {"a": _ones(3), "b": _ones(3)}, {"a": _ones(3), "b": _ones(4)}
        ),
        ShapeError,
        ("the direction v['b']", "got [4]"),
    ),
    BadInput(
        "no direction",
        lambda: d.value_gradient_and_hvp(_row_sum, _ones(3, 2), None),
        InputError,
        ("value_gradient_and_hvp: expected the direction v to be a tensor, got NoneType",),
    ),
    BadInput(
        "one direction for two inputs",
        lambda: d.value_and_directional(torch.mul, (_ones(3), _ones(3)), _ones(3)),
        InputError,
        ("one direction for each input in wrt, a tuple of 2, got Tensor", "leave it out of wrt"),
    ),
    BadInput(
        "direction names",
        lambda: d.value_and_directional(torch.mul, {"a": _ones(3), "b": _ones(3)}, {"a": _ones(3)}),
        InputError,
        ("a dict with the keys ['a', 'b'], got a dict with the keys ['a']",),
    ),
    BadInput(
        "wrt of a single tensor",
        lambda: d.value_and_gradient(_row_sum, _ones(3, 2), wrt=0),
        InputError,
        ("x is a single tensor: leave wrt out",),
    ),
    BadInput(
        "unknown wrt",
        lambda: d.value_and_gradient(torch.mul, (_ones(3), _ones(3)), wrt=2),
        InputError,
        ("wrt to name inputs among [0, 1], got 2",),
    ),
    BadInput(
        "wrt twice",
        lambda: d.value_and_gradient(torch.mul, (_ones(3), _ones(3)), wrt=[0, 0]),
        InputError,
        ("got [0, 0]",),
    ),
    BadInput(
        "empty wrt",
        lambda: d.value_and_gradient(torch.mul, (_ones(3), _ones(3)), wrt=[]),
        InputError,
        ("got []",),
    ),
    BadInput(
        "unconnected",
        lambda: d.value_and_gradient(_row_sum, _ones(3, 2), unconnected="zeros"),
        InputError,
        ("unconnected='error' or 'zero', got 'zeros'",),
    ),
    BadInput(
        "chunk",
        lambda: d.value_and_jacobian(torch.sin, _ones(3, 2), chunk_size=0),
        InputError,
        ("chunk_size to be 1 or more, or None, got 0",),
    ),
    BadInput(
        "cotangents",
        lambda: d.value_and_pullback(torch.sin, _ones(3, 2), _ones(4, 2)),
        ShapeError,
        ("the output's shape [3, 2], or a stack of them [V, 3, 2], got [4, 2]",),
    ),
    BadInput(
        "cotangents are a list",
        lambda: d.value_and_pullback(torch.sin, _ones(3, 2), [1.0]),
        InputError,
        ("value_and_pullback: expected cotangents to be a tensor, got list",),
    ),
    BadInput(
        "no random cotangents",
        lambda: d.random_cotangents((3, 2), 0),
        InputError,
        ("random_cotangents: expected count to be 1 or more, got 0",),
    ),
    BadInput(
        "integer cotangents",
        lambda: d.random_cotangents((3, 2), 1, dtype=torch.long),
        DtypeError,
        ("expected a floating dtype, got torch.int64",),
    ),
    BadInput(
        "complex direction",
        lambda: d.value_and_directional(_row_sum, _ones(3, 2), _ones(3, 2) * 1j),
        DtypeError,
        ("expected the direction v to be real, got torch.complex64",),
    ),
    BadInput(
        "complex cotangents",
        lambda: d.value_and_pullback(_row_sum, _ones(3, 2), _ones(3) * 1j),
        DtypeError,
        ("expected cotangents to be real, got torch.complex64",),
    ),
    BadInput(
        "other device",
        lambda: d.value_and_directional(_row_sum, _ones(3, 2), _ones(3, 2).to("meta")),
        InputError,
        ("the direction v on cpu, got it on meta: move it there",),
    ),
    BadInput(
        "detached output",
        lambda: d.value_and_gradient(lambda x: x.detach().sum(1), _ones(3, 2)),
        UnconnectedInputError,
        ("has no graph", "respect to x is", ".detach(), .item(), .numpy()", "no_grad block"),
    ),
    BadInput(
        "constant output",
        lambda: d.value_and_directional(lambda x: _ones(3, 2), _ones(3, 2), _ones(3, 2)),
        UnconnectedInputError,
        ("value_and_directional: the output of f has no graph", "unconnected='zero'"),
    ),
    BadInput(
        "ignored input",
        lambda: d.value_and_gradient(lambda a, b: a.sum(1), (_ones(3, 2), _ones(3, 2))),
        UnconnectedInputError,
        ("does not depend on x[1]", "Leave it out of wrt", "unconnected='zero'"),
    ),
    BadInput(
        "ignored named input",
        lambda: d.value_and_jacobian(lambda a, b: a, {"a": _ones(3, 2), "b": _ones(3, 2)}),
        UnconnectedInputError,
        ("value_and_jacobian: the output of f does not depend on x['b']",),
    ),
    BadInput(
        "no second derivative",
        lambda: d.value_gradient_and_hvp(
            lambda x: NumpyBackward.apply(x).sum(1), _ones(3, 2), _ones(2)
        ),
        GradientError,
        ("cannot be differentiated twice", "once_differentiable", "cudnn"),
    ),
    BadInput(
        "no second derivative of one part",
        lambda: d.value_gradient_and_hvp(
            lambda x: (NumpyBackward.apply(x) + x.sin()).sum(1), _ones(3, 2), _ones(2)
        ),
        GradientError,
        ("cannot be differentiated twice",),
    ),
    BadInput(
        "differences of a float32 module",
        lambda: d.gradient_by_differences(nn.Linear(2, 1), _ones(3, 2)),
        GradientError,
        ("gradient_by_differences: f could not be run in float64", ".double()"),
    ),
    BadInput(
        "differences with a bad step",
        lambda: d.gradient_by_differences(torch.sin, _ones(3, 2), step=-1.0),
        InputError,
        ("positive step, got -1.0",),
    ),
]
