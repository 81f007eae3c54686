"""Private or version-bound calls into torch, each with its reason. Checked with torch 2.13."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel


def leaves_of(y: Tensor) -> Iterator[Tensor]:
    """The leaf tensors that y's graph accumulates into.

    An AccumulateGrad node's `variable` is undocumented, but has been there since torch 0.4; nothing
    public leads from an output to its leaves.
    """
    if y.grad_fn is None and y.requires_grad:
        yield y
    for node in _nodes_of([y]):
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # type: ignore[attr-defined]


def has_refusal(gradients: Sequence[Tensor]) -> bool:
    """Whether a once-differentiable operator took part in these gradients.

    It leaves an Error node that is connected to nothing, so that autograd.grad passes it by and
    takes the gradient for a constant; only a backward over the whole graph would meet it.
    """
    return any(node.name() == "torch::autograd::Error" for node in _nodes_of(gradients))


def _nodes_of(tensors: Sequence[Tensor]) -> Iterator[Node]:
    """All nodes of a graph, each once; iterative, since graphs run deep."""
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                waiting.append(parent)


@contextmanager
def math_attention() -> Iterator[None]:
    """Attention by plain matrix products: the fused kernels have no second derivative."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def quiet_batching() -> Iterator[None]:
    """Silence the warning that batched autograd loops over an operator without a batching rule.

    The result is the same and no slower than the loop it replaces, so the warning tells a caller
    nothing that could be acted on.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*batching rule.*")
        yield
