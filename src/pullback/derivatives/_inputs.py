"""What stands behind `x` and `wrt`: one tensor, a tuple or a dict becomes a flat list and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pullback.derivatives._checks import (
    check_differentiable,
    check_direction,
    check_input,
    check_same_rows,
)
from pullback.errors import InputError

Key = int | str
# What users pass and get back: mypy cannot follow "the container of x", so it is left open.
Tensors = Any


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of one call.

    Attributes:
        api: the name of the call.
        keys: how the container names each value: None for a bare tensor, an index or a string.
        values: the caller's tensors, in order.
        wrt: positions in `values` whose derivative is asked for.
        kind: how f is called: Tensor for f(x), tuple for f(*x), dict for f(**x).
        container: what results come back in: tuple, dict, or None for a bare tensor.
    """

    api: str
    keys: tuple[Any, ...]
    values: tuple[Tensor, ...]
    wrt: tuple[int, ...]
    kind: type
    container: type | None

    @property
    def rows(self) -> int:
        """N."""
        return len(self.values[0])

    @property
    def active(self) -> list[Tensor]:
        """The values whose derivative is asked for."""
        return [self.values[i] for i in self.wrt]

    @property
    def names(self) -> list[str]:
        """The names of the inputs whose derivative is asked for."""
        return [name_of("x", self.keys[i]) for i in self.wrt]

    def call(self, f: Callable[..., Any], values: Sequence[Tensor]) -> Any:
        """Call f as its container says: f(x), f(*x) or f(**x)."""
        if self.kind is dict:
            return f(**dict(zip(self.keys, values, strict=True)))
        return f(*values)

    def pack(self, results: Sequence[Tensor]) -> Tensors:
        """Results, one for each of `wrt`, in the caller's container."""
        if self.container is None:
            return results[0]
        if self.container is dict:
            return {self.keys[i]: r for i, r in zip(self.wrt, results, strict=True)}
        return tuple(results)

    def directions(self, v: Tensors) -> list[Tensor]:
        """Directions in the container that results come back in, one for each of `wrt`."""
        keys = [None] if self.container is None else [self.keys[i] for i in self.wrt]
        if self.container is None:
            given = [v]
        elif self.container is dict:
            if not isinstance(v, Mapping) or set(v) != set(keys):
                raise InputError(self._wanted_directions(f"a dict with the keys {keys}", v))
            given = [v[key] for key in keys]
        elif isinstance(v, tuple) and len(v) == len(self.wrt):
            given = list(v)
        else:
            raise InputError(self._wanted_directions(f"a tuple of {len(self.wrt)}", v))
        return [
            normal(check_direction(self.api, name_of("v", key), direction, value))
            for key, direction, value in zip(keys, given, self.active, strict=True)
        ]

    def _wanted_directions(self, wanted: str, v: object) -> str:
        got = type(v).__name__
        if isinstance(v, Mapping):
            got = f"a dict with the keys {list(v)}"
        elif isinstance(v, tuple | list):
            got = f"a {got} of {len(v)}"
        return (
            f"{self.api}: expected one direction for each input in wrt, {wanted}, got {got}. "
            "For an input that stays fixed, leave it out of wrt."
        )


def name_of(letter: str, key: object) -> str:
    """How the caller would write one value: x, x[0], x['rate']."""
    return letter if key is None else f"{letter}[{key!r}]"


def normal(value: Tensor) -> Tensor:
    """The value as a tensor that can be saved for backward; for use outside inference mode."""
    return value.clone() if value.is_inference() else value


def parse_inputs(
    api: str, x: Tensors, wrt: Key | Sequence[Key] | None = None, *, probing: bool = False
) -> Inputs:
    """Check x and wrt, and flatten them; a probe can do without a differentiable input."""
    kind, keys, given = _flatten(api, x)
    names = [name_of("x", key) for key in keys]
    values = tuple(check_input(api, n, v) for n, v in zip(names, given, strict=True))
    check_same_rows(api, names, values)
    if probing:
        positions = tuple(i for i, value in enumerate(values) if value.is_floating_point())
    else:
        positions = _positions(api, kind, keys, values, wrt)
        for i in positions:
            check_differentiable(api, names[i], values[i])
    single = kind is Tensor or isinstance(wrt, int | str)
    return Inputs(api, keys, values, positions, kind, None if single else kind)


def _flatten(api: str, x: Tensors) -> tuple[type, tuple[Any, ...], tuple[object, ...]]:
    if isinstance(x, tuple | Mapping):
        if not x:
            raise InputError(f"{api}: expected at least one input, got an empty {type(x).__name__}")
        if isinstance(x, tuple):
            return tuple, tuple(range(len(x))), tuple(x)
        return dict, tuple(x.keys()), tuple(x.values())
    if isinstance(x, list):
        raise InputError(
            f"{api}: expected x to be a tensor [N, *D], a tuple (called f(*x)) or a dict (called "
            "f(**x)), got a list. Use tuple(x) for several inputs, torch.stack(x) for rows."
        )
    return Tensor, (None,), (x,)


def _positions(
    api: str,
    kind: type,
    keys: tuple[Any, ...],
    values: tuple[Tensor, ...],
    wrt: Key | Sequence[Key] | None,
) -> tuple[int, ...]:
    if wrt is None:
        # Complex inputs are kept in: leaving them out unasked would hide a derivative.
        floating = [i for i, v in enumerate(values) if v.is_floating_point() or v.is_complex()]
        return tuple(floating or range(len(values)))  # all integer: refused by name afterwards
    if kind is Tensor:
        raise InputError(
            f"{api}: wrt chooses among several inputs, but x is a single tensor: leave wrt out."
        )
    wanted = [wrt] if isinstance(wrt, int | str) else list(wrt)
    unknown = [key for key in wanted if key not in keys]
    if unknown or not wanted or len(set(wanted)) < len(wanted):
        raise InputError(f"{api}: expected wrt to name inputs among {list(keys)}, got {wrt!r}.")
    return tuple(keys.index(key) for key in wanted)
