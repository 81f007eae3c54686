"""State that is switched is given back, also after an exception: one context manager each."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def kept_rng(*devices: torch.device) -> Iterator[None]:
    """Give the CPU's random stream, and that of each device, back as it was."""
    accelerators = [device for device in devices if device.type != "cpu"]
    if not accelerators:
        with torch.random.fork_rng(devices=[]):
            yield
        return
    kind = accelerators[0].type
    indices = [
        torch.get_device_module(kind).current_device() if d.index is None else d.index
        for d in accelerators
    ]
    with torch.random.fork_rng(devices=indices, device_type=kind):
        yield


@contextmanager
def kept_buffers(f: Callable[..., object]) -> Iterator[None]:
    """Give every buffer of `f`, if it is a module, its values back (running statistics)."""
    parts = list(f.modules()) if isinstance(f, nn.Module) else []
    saved = [
        (part, name, buffer, buffer.detach().clone())
        for part in parts
        for name, buffer in part.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, values in saved:
                # Compared first: writing back equal values would bump the version counter,
                # and a graph that saved the buffer would then refuse its backward.
                if not torch.equal(buffer, values):
                    buffer.copy_(values)
                if getattr(part, name) is not buffer:  # forward put another tensor in its place
                    setattr(part, name, buffer)


@contextmanager
def module_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Switch every submodule to train or eval mode; each gets its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.train(training)
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def thread_count(threads: int | None) -> Iterator[None]:
    """Use this many intra-op threads; None changes nothing."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


def devices_of(*tensors: Tensor) -> tuple[torch.device, ...]:
    """The distinct devices that tensors lie on, in order of first sight."""
    return tuple(dict.fromkeys(tensor.device for tensor in tensors))


@contextmanager
def gradients_kept_on_error(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Give .grad of each tensor back as it was, if the body raises."""
    saved = [(t, t.grad, None if t.grad is None else t.grad.clone()) for t in tensors]
    try:
        yield
    except BaseException:
        for tensor, grad, values in saved:
            if grad is not None and values is not None:
                # In place: the caller, an optimizer or a reducer may hold this very tensor.
                grad.copy_(values)
            tensor.grad = grad
        raise
