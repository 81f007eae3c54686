"""Private or version-bound calls into torch, each with its reason. Checked with torch 2.13."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel


def leaves_of(y: Tensor) -> Iterator[Tensor]:
    """The leaf tensors that y's graph accumulates into; iterative, since graphs run deep.

    `grad_fn.next_functions` and the `variable` of an AccumulateGrad node are undocumented, but
    have been there since torch 0.4; nothing public leads from an output to its leaves.
    """
    if y.grad_fn is None and y.requires_grad:
        yield y
    for node in _nodes_of([y]):
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # type: ignore[attr-defined]


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


def saved_bytes(outputs: Sequence[Tensor]) -> int:
    """Bytes of the tensors that the graph of outputs saved for its backward, leaves left out.

    Reads the `_saved_*` attributes of the nodes (and `saved_tensors` of custom functions): shown in
    torch's tutorials, promised nowhere. Hooks on saved tensors would tell the same, but can make a
    graph keep itself alive.
    """
    leaves = {leaf.untyped_storage().data_ptr() for y in outputs for leaf in leaves_of(y)}
    held: dict[int, int] = {}
    for node in _nodes_of(outputs):
        names = [name for name in dir(node) if name.startswith("_saved_")]
        values = [getattr(node, name) for name in [*names, "saved_tensors"] if hasattr(node, name)]
        for value in values:
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor):
                    storage = tensor.untyped_storage()
                    held[storage.data_ptr()] = storage.nbytes()
    return sum(size for pointer, size in held.items() if pointer not in leaves)


def _nodes_of(outputs: Sequence[Tensor]) -> Iterator[Node]:
    waiting = [y.grad_fn for y in outputs if y.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
