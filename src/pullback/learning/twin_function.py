"""The twin pass as one differentiable operation, with its backward by hand.

NOTE [Twin backward]
In the letters of NOTE [Twin pass], with s = σ'(z), c = σ''(z), hˡ = gˡ ⊙ sˡ, one output at a
time, and a bar for the derivative of the loss: from ȳ = ∂loss/∂y and ḡ⁰ = ∂loss/∂(∂y/∂x), the way
back of the twin pass runs forwards through the layers,

    h̄ˡ = ω ḡˡ⁻¹ Wˡᵀ,    W̄ˡ += ω hˡᵀ ḡˡ⁻¹,    s̄ˡ += h̄ˡ ⊙ gˡ,    ḡˡ = h̄ˡ ⊙ sˡ,    V̄ += ḡ^L,

and then that of the forward pass backwards, with what the slopes have picked up,

    V̄ += ȳᵀ a^L,    ā^L = ȳ V,    z̄ˡ = āˡ ⊙ sˡ + s̄ˡ ⊙ cˡ,
    W̄ˡ += ω z̄ˡᵀ aˡ⁻¹,    b̄ˡ = ω Σ z̄ˡ,    āˡ⁻¹ = ω z̄ˡ Wˡ,    x̄ = ā⁰.

Six products of matrices a layer, where values alone take three: the arithmetic limit of 2. Sums run
over rows, and over outputs for the first line.

NOTE [Two backwards]
The forward pass is written once, in plain tensor operations. Its backward is the one above wherever
it can be, because autograd records and replays about twice as many operations. It is autograd's own
where something else must see or rewrite each operation: torch.func, forward mode, compile, export,
autocast. A graph of the gradient itself (create_graph) is autograd's graph of the equations above,
on a forward pass recorded anew: what the first one kept are constants to autograd.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from pullback._torch import is_rewritten
from pullback.errors import ShapeError
from pullback.learning.activations import Activation


def twin_pass(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    activation: Activation,
    omega_0: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Values and Jacobian of a multilayer perceptron, or of M of them in one pass.

    y = V σ(ω(W^L … σ(ω(W¹ x + b¹)) … + b^L)) + c and ∂y/∂x, by NOTE [Twin pass]. Any loss on both
    can be pulled back to x, weights and biases, once (by NOTE [Twin backward]) or many times.

    Args:
        x: [N, D]; with members also [M, N, D], each its own rows.
        weights: of each layer [out, in], the last one the linear output's; with members
            [M, out, in], M the same in all.
        biases: of each layer [out]; with members [M, out].
        activation: σ. One with weights of its own gets their gradients too.
        omega_0: ω.

    Returns:
        y [N, K] and dydx [N, K, D]: rows are ∂yₙ/∂xₙ. With members [M, N, K] and [M, N, K, D]:
        member m sees only its own weights, so a sum over members of their losses trains each alone.

    Raises:
        ShapeError: x fits neither [N, D] nor [M, N, D].

    >>> from pullback.learning.activations import as_activation
    >>> widths, M = (3, 8, 8, 2), 5
    >>> weights = [torch.randn(M, b, a) for a, b in zip(widths, widths[1:])]
    >>> biases = [torch.zeros(M, b) for b in widths[1:]]
    >>> y, dydx = twin_pass(torch.randn(7, 3), weights, biases, as_activation("tanh"))
    >>> y.shape, dydx.shape
    (torch.Size([5, 7, 2]), torch.Size([5, 7, 2, 3]))
    """
    x = _with_members(x, weights[0])
    if len(weights) == 1 or not torch.is_grad_enabled() or _is_plain(x, activation):
        y, jacobian, _ = _forward(x, weights, biases, activation, omega_0)
        return y, jacobian
    return _Twin.apply(activation, omega_0, x, *weights, *biases)


def _with_members(x: Tensor, first: Tensor) -> Tensor:
    members = first.shape[:-2]
    if x.shape == (*members, *x.shape[-2:]) and x.ndim >= 2 and x.shape[-1] == first.shape[-1]:
        return x
    if x.ndim == 2 and members and x.shape[1] == first.shape[-1]:
        return x.expand(*members, *x.shape)
    inputs = first.shape[-1]
    wanted = f"[N, {inputs}]" + "".join(f" or [{count}, N, {inputs}]" for count in members)
    raise ShapeError(f"twin_pass: expected x of shape {wanted}, got {tuple(x.shape)}")


def _is_plain(x: Tensor, activation: Activation) -> bool:
    """Whether autograd's own backward is due: see NOTE [Two backwards]."""
    return (
        torch.compiler.is_compiling()
        or is_rewritten()
        or torch.is_autocast_enabled(x.device.type)
        or activation.is_trained(x)
    )


class _Tape(NamedTuple):
    """What the forward pass leaves for its backward, each of hidden layers 1..L.

    Rows of g and h are one an output, [*, N·K, H], the output running fastest.
    """

    a_before: list[Tensor]
    z: list[Tensor]
    a: list[Tensor]
    s: list[Tensor]
    g: list[Tensor]
    h: list[Tensor]


def _forward(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    activation: Activation,
    omega: float,
) -> tuple[Tensor, Tensor, _Tape]:
    z: list[Tensor] = []
    a, s = [x], []
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        z.append(_times(omega, _affine(a[-1], weight, bias)))
        a.append(activation(z[-1]))
        s.append(activation.derivative(z[-1], a[-1]))
    g, h = [weights[-1]], []
    outputs = weights[-1].shape[-2]
    for weight, slope in zip(reversed(weights[:-1]), reversed(s), strict=True):
        h.append(_per_output(g[-1], slope, outputs))
        g.append(_times(omega, h[-1] @ weight))
    y = _affine(a[-1], weights[-1], biases[-1])
    if not h:
        jacobian = g[0].unsqueeze(-3).expand(*x.shape[:-1], *g[0].shape[-2:])
    else:
        jacobian = _split(g[-1], outputs)
    return y, jacobian, _Tape(a[:-1], z, a[1:], s, g[-2::-1], h[::-1])


class _Twin(torch.autograd.Function):
    """See NOTE [Twin backward]."""

    @staticmethod
    def forward(
        ctx: Any, activation: Activation, omega: float, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, jacobian, tape = _forward(*_sorted(tensors), activation, omega)
        ctx.activation, ctx.omega, ctx.inputs = activation, omega, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *(tensor for part in tape for tensor in part))
        return y, jacobian

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple[Tensor | None, ...]:
        tensors, kept = ctx.saved_tensors[: ctx.inputs], ctx.saved_tensors[ctx.inputs :]
        x, weights, biases = _sorted(tensors)
        if torch.is_grad_enabled():
            tape = _forward(x, weights, biases, ctx.activation, ctx.omega)[2]
        else:
            depth = len(weights) - 1
            tape = _Tape(*(list(kept[i : i + depth]) for i in range(0, len(kept), depth)))
        way = _WayBack(tape, weights, ctx.activation, ctx.omega)
        return None, None, *way(*bars, x_wanted=ctx.needs_input_grad[2])


class _WayBack:
    """The equations of NOTE [Twin backward], line by line; gradients in the order of inputs."""

    def __init__(
        self, tape: _Tape, weights: Sequence[Tensor], activation: Activation, omega: float
    ) -> None:
        self.tape, self.weights, self.activation, self.omega = tape, weights, activation, omega
        self.outputs = weights[-1].shape[-2]
        self.s_bar: list[Tensor | None] = [None] * len(tape.z)
        self.w_bar: list[Tensor | None] = [None] * len(weights)
        self.b_bar: list[Tensor | None] = [None] * len(weights)

    def __call__(
        self, y_bar: Tensor | None, jacobian_bar: Tensor | None, *, x_wanted: bool
    ) -> tuple[Tensor | None, ...]:
        if jacobian_bar is not None:
            self._through_the_twin(_rows(jacobian_bar))
        a_bar = None
        if y_bar is not None:
            self._add(-1, y_bar, self.tape.a[-1])
            self.b_bar[-1] = y_bar.sum(-2)
            a_bar = y_bar @ self.weights[-1]
        x_bar = self._through_the_values(a_bar, x_wanted=x_wanted)
        return x_bar, *self.w_bar, *self.b_bar

    def _through_the_twin(self, up: Tensor) -> None:
        """`up` is ḡ, below the layer and then above it."""
        tape, outputs = self.tape, self.outputs
        for i, (s, g, h) in enumerate(zip(tape.s, tape.g, tape.h, strict=True)):
            up = _times(self.omega, up)
            self._add(i, h, up)
            h_bar = up @ self.weights[i].mT
            self.s_bar[i] = _over_outputs(h_bar, g, outputs)
            up = _per_output(h_bar, s, outputs)
        self.w_bar[-1] = _split(up, outputs).sum(-3)

    def _through_the_values(self, a_bar: Tensor | None, *, x_wanted: bool) -> Tensor | None:
        tape = self.tape
        for i in reversed(range(len(tape.z))):
            z_bar = self._z_bar(i, a_bar)
            if z_bar is None:
                return None
            self._add(i, z_bar, tape.a_before[i])
            self.b_bar[i] = z_bar.sum(-2)
            if i > 0 or x_wanted:
                a_bar = z_bar @ self.weights[i]
        return a_bar if x_wanted else None

    def _z_bar(self, i: int, a_bar: Tensor | None) -> Tensor | None:
        tape, s_bar = self.tape, self.s_bar[i]
        z_bar = None if a_bar is None else a_bar * tape.s[i]
        if s_bar is not None:
            c = self.activation.bend(tape.z[i], tape.a[i], tape.s[i])
            z_bar = s_bar * c if z_bar is None else torch.addcmul(z_bar, s_bar, c)
        return None if z_bar is None else _times(self.omega, z_bar)

    def _add(self, i: int, left: Tensor, right: Tensor) -> None:
        """W̄ += leftᵀ right."""
        before = self.w_bar[i]
        if before is None:
            self.w_bar[i] = left.mT @ right
        elif before.ndim == 2:
            self.w_bar[i] = torch.addmm(before, left.mT, right)
        else:
            self.w_bar[i] = torch.baddbmm(before, left.mT, right)


def _sorted(tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """x, weights, biases."""
    layers = len(tensors) // 2
    return tensors[0], tensors[1 : 1 + layers], tensors[1 + layers :]


def _affine(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 2:
        return linear(a, weight, bias)
    return torch.baddbmm(bias.unsqueeze(-2), a, weight.mT)


def _times(factor: float, tensor: Tensor) -> Tensor:
    return tensor if factor == 1.0 else factor * tensor


def _per_output(g: Tensor, s: Tensor, outputs: int) -> Tensor:
    """Rows of g, of each output or the same for all N, times s [*, N, H]: [*, N·K, H]."""
    if outputs == 1:
        return g * s
    return _rows(_split(g, outputs) * s.unsqueeze(-2))


def _over_outputs(h: Tensor, g: Tensor, outputs: int) -> Tensor:
    """Σ over outputs of h ⊙ g: [*, N, H]."""
    if outputs == 1:
        return h * g
    return (_split(h, outputs) * _split(g, outputs)).sum(-2)


def _split(rows: Tensor, outputs: int) -> Tensor:
    """[*, N·K, H] as [*, N, K, H]."""
    # reshape and not unflatten: that one has no rule for batched gradients.
    return rows.reshape(*rows.shape[:-2], -1, outputs, rows.shape[-1])


def _rows(split: Tensor) -> Tensor:
    """[*, N, K, H] as [*, N·K, H]."""
    return split.reshape(*split.shape[:-3], -1, split.shape[-1])
