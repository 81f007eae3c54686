"""Networks whose derivative with respect to the input is written out: the twin pass.

NOTE [Twin pass]
Notation: a⁰ = x, zˡ = ω (Wˡ aˡ⁻¹ + bˡ), aˡ = σ(zˡ) for the hidden layers l = 1..L, and a linear
output y = V a^L + c. With gˡ = ∂y/∂aˡ,

    g^L = V,        gˡ⁻¹ = ω (gˡ ⊙ σ'(zˡ)) Wˡ,        ∂y/∂x = g⁰.

The factor ω belongs to every hidden layer of the way back as of the way forward. The same W serve
both ways, and σ'(z) is part of the graph: a loss on ∂y/∂x reaches every weight and every hidden
bias (through σ''), and not the output bias c, whose derivative in ∂y/∂x is truly zero.

A second derivative along v follows by differentiating both passes in that direction: with ȧ⁰ = v,
żˡ = ω Wˡ ȧˡ⁻¹ and ȧˡ = σ'(zˡ) żˡ, the tangent of the way back is

    ġˡ⁻¹ = ω (ġˡ ⊙ σ'(zˡ) + gˡ ⊙ σ''(zˡ) żˡ) Wˡ,      ġ^L = 0,      ∂²y/∂x² v = ġ⁰.

Source: Huge & Savine, Differential Machine Learning, 2020 (arXiv 2005.02347), section 2.
"""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from numbers import Integral
from typing import cast

import torch
from torch import Tensor, nn

from pullback._state import kept_rng
from pullback.derivatives import check_independent_rows, value_and_jacobian
from pullback.derivatives._connect import autograd_on
from pullback.derivatives._inputs import normal
from pullback.errors import InputError, PiecewiseLinearWarning, ShapeError
from pullback.learning.activations import Activation, Elementwise, as_activation
from pullback.learning.twin_function import twin_pass

# Standard deviation of a standard normal cut at two, which truncated initialisation divides by.
_TRUNCATED_DEVIATION = 0.87962566103423978


class MLP(nn.Module):
    """A multilayer perceptron that also returns its Jacobian, by an explicit twin pass.

    y = V σ(ω(W^L … σ(ω(W¹ x + b¹)) … + b^L)) + c. See NOTE [Twin pass].

    Args:
        inputs: D.
        outputs: K.
        hidden: width of each hidden layer; empty for a linear model.
        activation: a name, an `nn.Module`, or a callable σ(z); smooth ones learn from derivatives.
        activation_derivative: σ'(z); None takes that of a known activation, or autograd's.
        omega_0: ω, the factor on every hidden pre-activation (Sitzmann et al. 2020 for sin).
        generator: the source of the initial weights; None takes torch's own.
        dtype: of the weights.
        device: of the weights.

    Raises:
        ActivationError: the activation is unknown, not elementwise, or its derivative is wrong.
        InputError: a width is not a positive whole number.

    >>> net = MLP(3, 2, hidden=(8, 8), activation="tanh")
    >>> y, dydx = net.value_and_jacobian(torch.randn(5, 3))
    >>> y.shape, dydx.shape
    (torch.Size([5, 2]), torch.Size([5, 2, 3]))
    """

    def __init__(
        self,
        inputs: int,
        outputs: int = 1,
        hidden: Sequence[int] = (20, 20, 20, 20),
        activation: str | nn.Module | Elementwise | Activation = "softplus",
        *,
        activation_derivative: Elementwise | None = None,
        omega_0: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        widths = (inputs, *hidden, outputs)
        if not all(isinstance(width, Integral) and width > 0 for width in widths):
            raise InputError(f"MLP: expected positive whole widths, got {list(widths)}")
        self.widths = tuple(int(width) for width in widths)
        if not omega_0 > 0:
            raise InputError(f"MLP: expected omega_0 > 0, got {omega_0}")
        self.activation = as_activation(activation, activation_derivative)
        # A module given as activation may have weights of its own: registered, they are trained.
        self.activation_module = (
            activation.to(dtype=dtype, device=device) if isinstance(activation, nn.Module) else None
        )
        self.omega_0 = float(omega_0)
        place = torch.device(device or torch.get_default_device())
        # Each layer draws weights that are thrown away: torch's stream is the caller's.
        with kept_rng(place):
            self.layers = nn.ModuleList(
                nn.Linear(a, b, dtype=dtype, device=place) for a, b in pairwise(widths)
            )
        if self.activation.piecewise_linear and hidden:
            _warn_piecewise_linear(self.activation.name)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new weights: truncated normal of variance 1/fan_in, zero biases; uniform for sin.

        Drawn on the CPU in float64, so that a seed gives the same weights on every device and, to
        rounding, in every dtype.
        """
        for index, layer in enumerate(self.layers):
            weight = torch.empty(layer.weight.shape, dtype=torch.float64)  # type: ignore[arg-type]
            self._draw(weight, first=index == 0, generator=generator)
            layer.weight.copy_(weight)  # type: ignore[operator]
            layer.bias.zero_()  # type: ignore[operator]

    def _draw(self, weight: Tensor, *, first: bool, generator: torch.Generator | None) -> None:
        fan_in = weight.shape[1]
        if self.activation.name == "sin":
            # Sitzmann et al. 2020, section 3.2: keeps every pre-activation's spread near one.
            bound = 1.0 / fan_in if first else sqrt(6.0 / fan_in) / self.omega_0
            weight.uniform_(-bound, bound, generator=generator)
            return
        nn.init.trunc_normal_(weight, a=-2.0, b=2.0, generator=generator)
        weight.mul_(1.0 / (sqrt(fan_in) * _TRUNCATED_DEVIATION))

    def extra_repr(self) -> str:
        """What the layers do not show."""
        return f"activation={self.activation.name}, omega_0={self.omega_0:g}"

    @property
    def inputs(self) -> int:
        """D."""
        return self.widths[0]

    @property
    def outputs(self) -> int:
        """K."""
        return self.widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Values y [N, K] at x [N, D]."""
        a = self._checked(x)
        for layer in self.layers[:-1]:
            a = self.activation(self._scaled(layer(a)))
        return self.layers[-1](a)

    def value_and_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values y [N, K] and ∂y/∂x [N, K, D] at x [N, D], by the explicit pass."""
        x = self._checked(x)
        if not self.is_bare:
            return value_and_jacobian(self, x, check_rows=False)
        layers = [cast(nn.Linear, layer) for layer in self.layers]
        return twin_pass(
            x,
            [layer.weight for layer in layers],
            [layer.bias for layer in layers],
            self.activation,
            self.omega_0,
        )

    @property
    def is_bare(self) -> bool:
        """Whether every layer does what its weights say: no hooks, and none was replaced."""
        return not any(
            type(layer).forward is not nn.Linear.forward
            or layer._forward_pre_hooks
            or layer._forward_hooks
            or layer._backward_hooks
            for layer in self.layers
        )

    def value_jacobian_and_hvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values [N, K], Jacobian [N, K, D] and ∂²y/∂x² v [N, K, D], for v [N, D] or [D]."""
        x = self._checked(x)
        y, pre, post = self._forward(x)
        slopes = [self.activation.derivative(z, a) for z, a in zip(pre, post, strict=True)]
        bends = [self.activation.bend(z, a, s) for z, a, s in zip(pre, post, slopes, strict=True)]
        z_dots, a_dot = [], v.expand_as(x)
        for layer, slope in zip(self.layers[:-1], slopes, strict=True):
            z_dots.append(a_dot @ self._scaled(_weight(layer)).T)
            a_dot = slope * z_dots[-1]
        g = self._output_rows(x)
        g_dot = torch.zeros_like(g)
        for i in reversed(range(len(slopes))):
            weight, slope = self._scaled(_weight(self.layers[i])), slopes[i].unsqueeze(1)
            turned = (bends[i] * z_dots[i]).unsqueeze(1)
            g_dot = (g_dot * slope + g * turned) @ weight
            g = (g * slope) @ weight
        return y, g, g_dot

    def _forward(self, a: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        pre, post = [], []
        for layer in self.layers[:-1]:
            pre.append(self._scaled(layer(a)))
            a = self.activation(pre[-1])
            post.append(a)
        return self.layers[-1](a), pre, post

    def _scaled(self, tensor: Tensor) -> Tensor:
        return tensor if self.omega_0 == 1.0 else self.omega_0 * tensor

    def _output_rows(self, x: Tensor) -> Tensor:
        # shape[0] and not len: an exported program keeps the number of rows open.
        return _weight(self.layers[-1]).expand(x.shape[0], -1, -1)

    def _checked(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.inputs:
            raise ShapeError(f"MLP: expected x of shape [N, {self.inputs}], got {tuple(x.shape)}")
        return x


def _weight(layer: nn.Module) -> Tensor:
    # nn.ModuleList forgets that its parts are linear layers.
    return cast(nn.Linear, layer).weight


class Twin(nn.Module):
    """A module together with its derivative: twin(x) gives (y, dydx).

    An `MLP` (or any module with a method `value_and_jacobian`) uses its own explicit pass; every
    other module whose rows are independent goes through autograd. Both are differentiable again,
    so a loss on dydx trains the weights.

    Args:
        module: maps x [N, *D] to y [N, *K].
        check_rows: refuse a module that couples rows (BatchNorm in train mode); looked at on the
            first call in each of train and eval mode.

    Raises:
        CoupledRowsError: row i of the output depends on row j of the input.

    >>> twin = Twin(nn.Linear(3, 1))
    >>> y, dydx = twin(torch.zeros(5, 3))
    >>> bool((dydx[:, 0] == twin.module.weight).all())
    True
    """

    def __init__(self, module: nn.Module, *, check_rows: bool = True) -> None:
        super().__init__()
        self.module = module
        self.check_rows = check_rows
        self._checked_modes: set[bool] = set()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values y [N, *K] and ∂y/∂x [N, *K, *D] at x [N, *D]."""
        if hasattr(self.module, "value_and_jacobian"):
            return self.module.value_and_jacobian(x)  # type: ignore[operator]
        # One row alone shows nothing: the check waits for a batch.
        if self.check_rows and self.module.training not in self._checked_modes and len(x) > 1:
            check_independent_rows(self.module, x)
            self._checked_modes.add(self.module.training)
        return value_and_jacobian(self.module, x, check_rows=False)

    def value_jacobian_and_hvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values [N, K], Jacobian [N, K, D] and second derivative along v, [N, K, D]."""
        if hasattr(self.module, "value_jacobian_and_hvp"):
            return self.module.value_jacobian_and_hvp(x, v)  # type: ignore[operator]
        return _hvp_by_autograd(self, x, v)


def _hvp_by_autograd(twin: Twin, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the Jacobian, pulled back once more: H is symmetric, so Hv = ∂(g·v)/∂x."""
    with autograd_on() as keep:
        x = x if keep and x.requires_grad else normal(x).detach().requires_grad_()
        v = normal(v).expand_as(x)
        y, jac = twin(x)
        along = (jac * v.reshape(-1, *[1] * (jac.ndim - v.ndim), *v.shape[1:])).flatten(2).sum(2)
        # Zeros where the Jacobian is a constant: a linear module.
        rows = [
            torch.autograd.grad(
                along[:, k].sum(), x, create_graph=keep, retain_graph=True, materialize_grads=True
            )[0]
            for k in range(along.shape[1])
        ]
    hvp = torch.stack(rows, dim=1)
    return (y, jac, hvp) if keep else (y.detach(), jac.detach(), hvp)


def _warn_piecewise_linear(name: str) -> None:
    warnings.warn(
        f"activation {name} is piecewise linear: its second derivative is zero, so a loss on "
        "derivatives sends no gradient to the hidden biases and the predicted derivative is a "
        "staircase. Use softplus, tanh, silu, gelu or sin to learn from derivatives.",
        PiecewiseLinearWarning,
        stacklevel=3,
    )
