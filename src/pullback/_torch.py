"""Private or version-bound calls into torch, each with its reason. Checked with torch 2.13."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


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


def is_rewritten() -> bool:
    """Whether a torch.func transform or forward mode is at work on the operations run now.

    A custom autograd.Function is one operation, which these can't look into. Nothing public tells:
    autograd.Function.apply asks the same of functorch, and dual levels are counted there.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


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


def _nodes_of(tensors: Sequence[Tensor]) -> Iterator[Node]:
    """All nodes of a graph, each once; iterative, since graphs run deep."""
    seen = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        yield node
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                waiting.append(parent)


@contextmanager
def differentiable_kernels(*, thrice: bool) -> Iterator[None]:
    """Run a function on kernels whose derivatives can be differentiated again.

    Fused attention has no second derivative, so it is done by plain matrix products. Layer and
    instance normalisation have a second derivative, but it takes the deviation for a constant: the
    third, which is what training on a second-order result needs, is wrong and nothing says so.
    With `thrice` they are written out.
    """
    with sdpa_kernel(SDPBackend.MATH):
        if thrice:
            with _WrittenOutNorms():
                yield
        else:
            yield


class _WrittenOutNorms(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.layer_norm:
            return _layer_norm(*args, **kwargs)
        if func is torch.nn.functional.instance_norm and _keeps_no_statistics(*args, **kwargs):
            return _instance_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    y = _standardised(input, tuple(range(-len(normalized_shape), 0)), eps)
    return _affine(y, weight, bias)


def _keeps_no_statistics(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    *_: Any,
    **__: Any,
) -> bool:
    return use_input_stats and running_mean is None


def _instance_norm(
    input: Tensor,
    running_mean: None = None,
    running_var: None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    y = _standardised(input, tuple(range(2, input.dim())), eps)
    channels = (-1, *[1] * (input.dim() - 2))
    return _affine(
        y,
        None if weight is None else weight.reshape(channels),
        None if bias is None else bias.reshape(channels),
    )


def _standardised(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    return (x - mean) * (variance + eps).rsqrt()


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias
