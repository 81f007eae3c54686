"""One table of cases feeds every derivative test; a new layer is one record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
