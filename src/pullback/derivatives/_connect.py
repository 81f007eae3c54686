"""One forward of f with a graph from the asked-for inputs, and pulls along that graph.

NOTE [What is differentiated]
The caller's tensors are never differentiated themselves: their requires_grad would have to be
switched, and an input that f also reaches by a closure, or by another argument, would be counted
twice. Each gets a stand-in, the *point*: a fresh leaf, or a view of the caller's tensor where that
has a history of its own. f is given a copy of the point, so that an in-place operation at its
start (ReLU(inplace=True)) spoils neither the caller's data nor the point.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback._torch import differentiable_kernels, leaves_of
from pullback.derivatives._checks import check_output, refuse_detached, refuse_unconnected
from pullback.derivatives._inputs import Inputs, normal


@dataclass(frozen=True, eq=False)
class Graph:
    """f's output, and the points that it is to be differentiated at.

    Attributes:
        inputs: what f was called with.
        points: one for each of `inputs.wrt`.
        y: [N, *K], connected to the points.
        keep: whether results stay connected to weights and to the history of x.
        zero: whether an unconnected input gives zeros.
    """

    inputs: Inputs
    points: tuple[Tensor, ...]
    y: Tensor
    keep: bool
    zero: bool

    def pull(self, cotangent: Tensor, *, retain: bool = False, graph: bool = False) -> list[Tensor]:
        """Pull cotangents [N, *K] back to each point: Σ_k u_nk ∂y_nk/∂x_n, [N, *D]."""
        return self._filled(self._grads(cotangent, retain=retain, graph=graph))

    def pull_many(self, cotangents: Tensor) -> list[Tensor]:
        """Pull V cotangents [V, N, *K] back at once: [V, N, *D]. The graph is kept."""
        grads = self._grads(cotangents, retain=True, batched=True)
        return self._filled(grads, len(cotangents))

    def _grads(
        self, cotangent: Tensor, *, retain: bool, graph: bool = False, batched: bool = False
    ) -> Sequence[Tensor | None]:
        if not self.y.requires_grad:
            return [None] * len(self.points)
        again = self.keep or graph
        if again and not cotangent.requires_grad:
            # A once-differentiable operator refuses the second derivative only where its cotangent
            # requires grad; with a constant one it would give zero and say nothing.
            cotangent = cotangent.detach().requires_grad_()
        return torch.autograd.grad(
            self.y,
            self.points,
            cotangent,
            create_graph=again,
            retain_graph=retain or again,
            allow_unused=True,
            is_grads_batched=batched,
        )

    def _filled(self, grads: Sequence[Tensor | None], *batch: int) -> list[Tensor]:
        """None means not connected: an error that names the input, or zeros if asked for."""
        if not self.zero and not self.y.requires_grad:
            refuse_detached(self.inputs.api, self.inputs.names)
        filled = []
        for name, point, grad in zip(self.inputs.names, self.points, grads, strict=True):
            if grad is None:
                if not self.zero:
                    refuse_unconnected(self.inputs.api, name)
                grad = point.new_zeros((*batch, *point.shape))
            filled.append(grad)
        return filled

    def released(self, result: Tensor) -> Tensor:
        """The result as the caller gets it."""
        return result if self.keep else result.detach()


@contextmanager
def autograd_on() -> Iterator[bool]:
    """Record a graph whatever the caller's mode; yields whether the caller records one too.

    enable_grad alone does not help inside inference_mode: tensors made there never get a graph.
    """
    recording = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        yield recording


def connect(
    f: Callable[..., Any],
    inputs: Inputs,
    *,
    recording: bool,
    zero: bool = False,
    twice: bool = False,
    also: Sequence[Tensor] = (),
) -> Graph:
    """Run f on points; call it under `autograd_on`.

    Args:
        f: the function.
        inputs: what it is called with.
        recording: whether the caller's grad mode is on.
        zero: whether an unconnected input gives zeros.
        twice: whether the graph is differentiated again here.
        also: further tensors that the result depends on (directions, cotangents).
    """
    points = {i: _point(inputs.values[i], recording) for i in inputs.wrt}
    values = [points.get(i, normal(value)).clone() for i, value in enumerate(inputs.values)]
    if twice or recording:
        with differentiable_kernels(thrice=twice and recording):
            y = inputs.call(f, values)
    else:
        y = inputs.call(f, values)
    y = check_output(inputs.api, y, inputs.rows)
    traced = (*inputs.values, *also)
    keep = recording and (
        any(t.requires_grad for t in traced) or _reaches_others(y, points.values())
    )
    return Graph(inputs, tuple(points.values()), y, keep, zero)


def _point(value: Tensor, recording: bool) -> Tensor:
    if recording and value.requires_grad:
        return value.view_as(value)
    return normal(value).detach().requires_grad_()


def _reaches_others(y: Tensor, points: Iterable[Tensor]) -> bool:
    """Whether the caller could differentiate the result: y reaches a leaf that is not ours.

    A pure function of x (torch.sin) then comes back without a graph, as f(x) itself would.
    """
    own = {id(point) for point in points}
    return any(id(leaf) not in own for leaf in leaves_of(y))
