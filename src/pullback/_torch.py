"""Private or version-bound calls into torch, each with its reason. Checked with torch 2.13."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def leaves_of(y: Tensor) -> Iterator[Tensor]:
    """The leaf tensors that y's graph accumulates into; iterative, since graphs run deep.

    `grad_fn.next_functions` and the `variable` of an AccumulateGrad node are undocumented, but
    have been there since torch 0.4; nothing public leads from an output to its leaves.
    """
    if y.grad_fn is None:
        if y.requires_grad:
            yield y
        return
    waiting, seen = [y.grad_fn], {y.grad_fn}
    while waiting:
        node = waiting.pop()
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # type: ignore[attr-defined]
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
