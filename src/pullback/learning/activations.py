"""Activations with their derivatives, as plain tensor operations.

The twin pass multiplies back through the layers, so it needs σ' as a function of what the forward
pass already has: the pre-activation z and the activation a = σ(z). Written as plain tensor
operations it is differentiable again, exports and compiles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pullback.derivatives._connect import autograd_on
from pullback.derivatives._inputs import normal
from pullback.errors import ActivationError

Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Activation:
    """An elementwise function σ and its derivative.

    Attributes:
        name: how it is written in a saved model; a callable without a name of its own cannot be
            saved.
        function: σ(z).
        derivative: σ'(z), given z and a = σ(z).
        second: σ''(z), given z, a and s = σ'(z); None takes it by autograd.
        piecewise_linear: σ'' is zero almost everywhere.
        known: it is one of the named activations, so that a saved model can name it.
        given: what `as_activation` was given, for any other.
    """

    name: str
    function: Elementwise
    derivative: Callable[[Tensor, Tensor], Tensor]
    piecewise_linear: bool = False
    known: bool = True
    given: tuple[Any, ...] = ()
    second: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    def bend(self, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """σ''(z), given a = σ(z) and s = σ'(z)."""
        return _bend(self, z) if self.second is None else self.second(z, a, s)

    def is_trained(self, like: Tensor) -> bool:
        """Whether weights of its own require grad, wherever it keeps them."""
        if self.known:
            return False
        z = like.detach().new_zeros(1)
        a = self.function(z)
        return a.requires_grad or self.derivative(z, a).requires_grad

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it was made from: the functions here have no names."""
        return as_activation, self.given or (self.name,)

    def __call__(self, z: Tensor) -> Tensor:
        """σ(z), elementwise."""
        return self.function(z)


def _bend(activation: Activation, z: Tensor) -> Tensor:
    """σ''(z), by autograd of σ'."""
    with autograd_on() as keep:
        z = z if keep and z.requires_grad else normal(z).detach().requires_grad_()
        slope = activation.derivative(z, activation.function(z))
        if not slope.requires_grad:
            return torch.zeros_like(z)
        (bend,) = torch.autograd.grad(slope.sum(), z, create_graph=keep, allow_unused=True)
    return torch.zeros_like(z) if bend is None else bend


def _normal_cdf(z: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.erf(z * sqrt(0.5)))


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z * z) / sqrt(2.0 * pi)


def _silu_derivative(z: Tensor, a: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s + a * (1.0 - s)


def _silu_second(z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1.0 - sigmoid) * (2.0 + z - 2.0 * a)


def _zeros(z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    return torch.zeros_like(z)


ACTIVATIONS = {
    activation.name: activation
    for activation in (
        # Threshold 20 of torch's softplus is exact in float32 only; 40 is in float64 too.
        Activation(
            "softplus",
            lambda z: functional.softplus(z, threshold=40.0),
            lambda z, a: torch.sigmoid(z),
            second=lambda z, a, s: torch.addcmul(s, s, s, value=-1.0),
        ),
        Activation(
            "tanh",
            torch.tanh,
            lambda z, a: 1.0 - a * a,
            second=lambda z, a, s: -2.0 * (a * s),
        ),
        Activation(
            "sigmoid",
            torch.sigmoid,
            lambda z, a: torch.addcmul(a, a, a, value=-1.0),
            second=lambda z, a, s: s - 2.0 * (a * s),
        ),
        Activation("silu", functional.silu, _silu_derivative, second=_silu_second),
        Activation(
            "gelu",
            functional.gelu,
            lambda z, a: _normal_cdf(z) + z * _normal_density(z),
            second=lambda z, a, s: (2.0 - z * z) * _normal_density(z),
        ),
        Activation("sin", torch.sin, lambda z, a: torch.cos(z), second=lambda z, a, s: -a),
        # exp(min(z, 0)) and not exp(z): the branch not taken must not overflow in the backward.
        Activation(
            "elu",
            functional.elu,
            lambda z, a: torch.exp(z.clamp(max=0.0)),
            second=lambda z, a, s: torch.where(z > 0, 0.0, s),
        ),
        Activation(
            "identity",
            lambda z: z,
            lambda z, a: torch.ones_like(z),
            piecewise_linear=True,
            second=_zeros,
        ),
        Activation(
            "relu",
            torch.relu,
            lambda z, a: (z > 0).to(z.dtype),
            piecewise_linear=True,
            second=_zeros,
        ),
        Activation(
            "leaky_relu",
            functional.leaky_relu,
            lambda z, a: torch.where(z > 0, torch.ones_like(z), 0.01),
            piecewise_linear=True,
            second=_zeros,
        ),
    )
}

# By their repr, which shows arguments: GELU(approximate='tanh') is another function than gelu.
_MODULES = {
    repr(module): name
    for name, module in {
        "elu": nn.ELU(),
        "gelu": nn.GELU(),
        "identity": nn.Identity(),
        "leaky_relu": nn.LeakyReLU(),
        "relu": nn.ReLU(),
        "sigmoid": nn.Sigmoid(),
        "silu": nn.SiLU(),
        "softplus": nn.Softplus(),
        "tanh": nn.Tanh(),
    }.items()
}

# Both sides of zero, far out, and no kink of a usual activation hit exactly.
_PROBE = (
    -31.7,
    -6.03,
    -2.51,
    -1.23,
    -0.77,
    -0.31,
    -0.011,
    0.017,
    0.29,
    0.83,
    1.31,
    2.47,
    5.9,
    29.3,
)


def as_activation(
    activation: str | nn.Module | Elementwise | Activation,
    derivative: Elementwise | None = None,
) -> Activation:
    """An `Activation` from a name, a module, or a callable with or without its own derivative.

    Without `derivative`, that of a callable is taken by autograd, for each batch.

    Raises:
        ActivationError: the name is unknown, the function is not elementwise, or `derivative` is
            not its derivative.

    >>> as_activation("tanh").derivative(torch.tensor(0.0), torch.tensor(0.0))
    tensor(1.)
    >>> as_activation(torch.tanh, lambda z: z)  # the identity, where 1 - tanh² is due
    Traceback (most recent call last):
    ...
    pullback.errors.ActivationError: activation_derivative: expected the derivative of tanh; at
    z = -31.7 it gives -31.7, and the slope of tanh there is 0. Pass the right one, or none: then
    it is taken by autograd.
    """
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, str) and derivative is None:
        return _by_name(activation)
    if isinstance(activation, nn.Module) and derivative is None:
        same = _MODULES.get(str(activation))
        if same is not None:
            return ACTIVATIONS[same]
    function = _by_name(activation).function if isinstance(activation, str) else activation
    if not callable(function):
        raise ActivationError(
            f"activation: expected a name, a module or a callable, got {type(function).__name__}"
        )
    name = activation if isinstance(activation, str) else _name_of(function)
    slopes = _probe(name, function)
    flat, given = _is_flat(function), (activation, derivative)
    if derivative is None:
        return Activation(name, function, _by_autograd(function), flat, known=False, given=given)
    _compare(name, derivative, slopes)
    return Activation(name, function, lambda z, a: derivative(z), flat, known=False, given=given)


def _by_name(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ActivationError(
            f"activation: expected one of {', '.join(sorted(ACTIVATIONS))}, a module or a callable;"
            f" got {name!r}"
        )
    return ACTIVATIONS[name]


def _name_of(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _by_autograd(function: Elementwise) -> Callable[[Tensor, Tensor], Tensor]:
    def derivative(z: Tensor, a: Tensor) -> Tensor:
        with autograd_on() as keep:
            z = z if keep and z.requires_grad else normal(z).detach().requires_grad_()
            (slope,) = torch.autograd.grad(function(z).sum(), z, create_graph=keep)
        return slope

    return derivative


def _probe_points(function: object) -> Tensor:
    parameters = function.parameters() if isinstance(function, nn.Module) else iter(())
    like = next(parameters, torch.empty(0, dtype=torch.float64))
    return torch.tensor(_PROBE, dtype=like.dtype, device=like.device)


def _probe(name: str, function: Elementwise) -> Tensor:
    """Slopes at the probe points; refuses a function that is not elementwise and differentiable."""
    z = _probe_points(function)
    with torch.enable_grad():
        leaf = z.clone().requires_grad_()
        values = function(leaf)
        if not isinstance(values, Tensor) or values.shape != z.shape:
            raise ActivationError(
                f"activation: expected an elementwise function, {name} gave "
                f"{tuple(getattr(values, 'shape', ()))} for an input of {tuple(z.shape)}"
            )
        if not values.requires_grad:
            raise ActivationError(f"activation: {name} cuts the graph: its output has no grad_fn")
        (slopes,) = torch.autograd.grad(values.sum(), leaf)
        alone = torch.cat([function(z[i : i + 1]) for i in range(len(z))])
    if not torch.allclose(alone, values, rtol=1e-5, atol=1e-6):
        raise ActivationError(
            f"activation: expected an elementwise function; what {name} gives for one element "
            "depends on the others. Softmax and normalisations belong in a module of your own, "
            "used through Twin(module)."
        )
    return slopes.detach()


def _compare(name: str, derivative: Elementwise, slopes: Tensor) -> None:
    z = torch.tensor(_PROBE, dtype=slopes.dtype, device=slopes.device)
    given = torch.as_tensor(derivative(z)).detach().broadcast_to(z.shape)
    wrong = ~torch.isclose(given.to(slopes), slopes, rtol=1e-4, atol=1e-6)
    if wrong.any():
        first = int(wrong.nonzero()[0])
        raise ActivationError(
            f"activation_derivative: expected the derivative of {name}; at z = {_PROBE[first]:g} "
            f"it gives {float(given[first]):.4g}, and the slope of {name} there is "
            f"{float(slopes[first]):.4g}. Pass the right one, or none: then it is taken by "
            "autograd."
        )


def _is_flat(function: Elementwise) -> bool:
    """Whether σ'' is zero at every probe point: the function is piecewise linear."""
    z = _probe_points(function)
    with torch.enable_grad():
        leaf = z.requires_grad_()
        (slope,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
        if not slope.requires_grad:
            return True
        (bend,) = torch.autograd.grad(slope.sum(), leaf, allow_unused=True)
    return bend is None or not bool(bend.any())
