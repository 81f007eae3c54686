"""Every private or version-bound torch call of the doctor, with its reason and its fallback."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any

import torch
import torch.autograd
from torch import Tensor
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

# AccumulateGrad nodes carry the largest unsigned number, so leaves drop out of any comparison.
LEAF = 2**63

# The number of a node: rises in the order of creation within one thread. A methodcaller, since a
# walk asks every node and a function would cost more.
sequence_of = methodcaller("_sequence_nr")

# The one gate of backward() and grad(); both read it from the namespace of torch.autograd.
GATE = "_engine_run_backward"


def missing_features() -> tuple[str, ...]:
    """What this torch lacks, in words, each with what the doctor then cannot see."""
    lacks = []
    if not callable(getattr(torch.autograd, GATE, None)):
        lacks.append(f"torch.autograd.{GATE} is gone: no backward can be recorded")
    if not hasattr(torch._C._autograd, "_get_sequence_nr"):
        lacks.append("torch has no _get_sequence_nr: old and new nodes cannot be told apart")
    if not hasattr(_a_node(), "_sequence_nr"):
        lacks.append("nodes have no _sequence_nr: old and new nodes cannot be told apart")
    if not hasattr(_a_node(), "_raw_saved_result"):
        lacks.append("nodes have no _raw_saved_*: bytes held by a graph are not counted")
    return tuple(lacks)


def _a_node() -> Any:
    with torch.enable_grad():
        return torch.ones((), requires_grad=True).exp().grad_fn


def _no_sequence() -> int:
    return 0


# What the next node made in this thread will be numbered. Read without making a node.
next_sequence: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", _no_sequence)


# While the doctor itself reads tensors, no operation watch (ours or the user's) should hear of it.
# Without any watch on the stack (level="light", most programs) there is nothing to silence.
modes: Callable[[], int] = torch._C._len_torch_function_stack
unheard = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)


def current_gate() -> Callable[..., Any]:
    """The function through which every backward now goes."""
    gate: Callable[..., Any] = getattr(torch.autograd, GATE)
    return gate


def set_gate(gate: Callable[..., Any]) -> None:
    """Put another function in front of the engine."""
    setattr(torch.autograd, GATE, gate)


def variable_of(node: Any) -> Tensor | None:
    """The tensor behind an AccumulateGrad node."""
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, Tensor) else None


def roots_of(outputs: Sequence[Any]) -> list[tuple[Any, int]]:
    """Node and output number of each root, whether tensor or GradientEdge."""
    roots = []
    for output in outputs:
        if isinstance(output, Tensor):
            if output.grad_fn is not None:
                roots.append((output.grad_fn, output.output_nr))
        elif getattr(output, "node", None) is not None:
            roots.append((output.node, output.output_nr))
    return roots


def is_custom(node: Any) -> bool:
    """Whether a node belongs to a torch.autograd.Function written in Python."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


_SAVED: dict[type, tuple[str, ...]] = {}


def _saved_names(node: Any) -> tuple[str, ...]:
    # dir() is slow and the same for every node of a type.
    kind = type(node)
    if kind not in _SAVED:
        _SAVED[kind] = tuple(
            name[len("_raw_saved_") :] for name in dir(kind) if name.startswith("_raw_saved_")
        )
    return _SAVED[kind]


def saved_state(node: Any) -> tuple[str, tuple[Tensor, ...]]:
    """What became of a node's saved tensors: nothing, live, freed or modified; and the live ones.

    `_raw_saved_x.data` runs no unpack hook. It is None both when freed and when nothing was
    saved; then `_saved_x` tells which, and there is nothing left that a hook could unpack.
    """
    state, tensors = "nothing", []
    for name in _saved_names(node):
        try:
            raw = getattr(node, f"_raw_saved_{name}")
        except RuntimeError:
            return "freed", ()
        parts = raw if isinstance(raw, tuple) else (raw,)
        data = [getattr(part, "data", None) for part in parts]
        tensors += [d for d in data if isinstance(d, Tensor)]
        if any(d is not None for d in data):
            state = "live"
        elif parts:
            try:
                getattr(node, f"_saved_{name}")
            except RuntimeError as error:
                return ("modified" if "inplace" in str(error) else "freed"), ()
            except AttributeError:
                pass
    return state, tuple(tensors)


def modified_tensor(node: Any) -> Tensor | None:
    """The saved tensor of a node that was changed in place after it was saved.

    Only reading `_saved_x` compares versions, and reading runs unpack hooks; so it is asked of
    plain tensors only.
    """
    for name in _saved_names(node):
        try:
            raw = getattr(node, f"_raw_saved_{name}")
        except RuntimeError:
            continue
        if isinstance(raw, tuple) or not isinstance(getattr(raw, "data", None), Tensor):
            continue
        try:
            getattr(node, f"_saved_{name}")
        except RuntimeError as error:
            if "inplace operation" in str(error):
                tensor: Tensor = raw.data
                return tensor
        except AttributeError:
            continue
    return None


def gradients_of_edge(node: Any, number: int, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Gradients of a 0-dim output of `node`, through the engine as it is without the doctor."""
    edge = torch.autograd.graph.GradientEdge(node, number)
    one = torch.ones((), dtype=inputs[0].dtype, device=inputs[0].device)
    return torch.autograd.grad(
        [edge], list(inputs), grad_outputs=[one], retain_graph=True, allow_unused=True
    )


def is_small(node: Any) -> bool:
    """Whether a node's output has at most one dimension, as far as torch tells."""
    metadata = getattr(node, "_input_metadata", None)
    return not metadata or all(len(part.shape) <= 1 for part in metadata)


def is_scalar(node: Any, number: int) -> bool:
    """Whether an output of a node is one number, as far as torch tells."""
    metadata = getattr(node, "_input_metadata", None)
    if not metadata or number >= len(metadata):
        return False
    return all(size == 1 for size in metadata[number].shape)


@contextlib.contextmanager
def without_modes(kind: type[TorchFunctionMode]) -> Iterator[None]:
    """Take the modes of one class off this thread's stack, and put the stack back as it was.

    torch.compile would trace into a mode that is on the stack.
    """
    stack: list[TorchFunctionMode] = []
    while torch._C._len_torch_function_stack():
        stack.append(_pop_mode())
    others = [mode for mode in stack if not isinstance(mode, kind)]
    for mode in reversed(others):
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in others:
            _pop_mode()
        for mode in reversed(stack):
            _push_mode(mode)


def compiled_module_class() -> type | None:
    """The class of modules that torch.compile makes; None where nothing has been compiled yet.

    Importing the compiler takes seconds, so it is looked for, not imported.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return getattr(compiler, "OptimizedModule", None)
