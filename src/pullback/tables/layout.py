"""Which columns of a file are inputs, outputs and derivatives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from pullback.errors import TableError
from pullback.learning.columns import Columns
from pullback.tables.source import Source


@dataclass(frozen=True)
class Layout:
    """The columns of a file by role.

    Attributes:
        columns: the names they go by in a model.
        x: D columns of the file.
        y: K columns of the file; empty where values are not asked for.
        dydx: the column of each derivative, by (k, d); what is left out is unknown.
    """

    columns: Columns
    x: tuple[str, ...]
    y: tuple[str, ...]
    dydx: Mapping[tuple[int, int], str]


def choose(
    source: Source,
    *,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    dydx: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Layout:
    """Find inputs, outputs and derivatives for a new model.

    An item is the name of a column, of an array in an npz file, or a pattern such as `spot*`.
    Where `x` or `y` is empty, what the file says of itself is used. Where `dydx` is None, so it is
    there, or else every column with a name like dprice/dspot; `()` means no derivatives.

    Raises:
        TableError: a column is not there, has two roles, or its role cannot be told.
    """
    inputs = expand(source, x, "x") or _said(source, "x", source.roles.x)
    outputs = expand(source, y, "y") or _said(source, "y", source.roles.y)
    _check_apart(source, {"x": inputs, "y": outputs})
    known = {n: u for n, u in source.roles.units.items() if n in (*inputs, *outputs)}
    columns = Columns(inputs, outputs, {**known, **_checked_units(source, units, inputs, outputs)})
    return _layout(source, columns, inputs, outputs, dydx)


def locate(
    source: Source,
    columns: Columns,
    *,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    dydx: Sequence[str] | None = None,
    truths: bool = True,
) -> Layout:
    """Find the columns of a model in a file, by its names or, in order, by those given.

    Args:
        source: the file.
        columns: of the model.
        x: columns of the file that take the place of the model's inputs, in their order.
        y: the same for its outputs.
        dydx: as in `choose`.
        truths: look for values and derivatives, and not for inputs alone.

    Raises:
        TableError: a column is not there, or not as many are given as the model has.
    """
    inputs = _in_place(source, "inputs", columns.inputs, expand(source, x, "x"))
    if not truths:
        return Layout(columns, inputs, (), {})
    outputs = _in_place(source, "outputs", columns.outputs, expand(source, y, "y"))
    return _layout(source, columns, inputs, outputs, dydx)


def expand(source: Source, items: Sequence[str], role: str) -> tuple[str, ...]:
    """Columns that items stand for; each item may itself be a list separated by commas."""
    found: list[str] = []
    for item in items:
        # The whole item first: a column's name may hold a comma.
        parts = [item] if item in source.names else [p.strip() for p in item.split(",")]
        for part in filter(None, parts):
            found += _matches(source, part, role)
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise TableError(f"{source.path}: column {twice[0]!r} is given twice for {role}")
    return tuple(found)


def _matches(source: Source, part: str, role: str) -> tuple[str, ...]:
    if part in source.names:
        return (part,)
    if part in source.groups:
        return source.groups[part]
    found = tuple(name for name in source.names if fnmatchcase(name, part))
    if not found:
        raise missing(source, part, f"asked for as {role}")
    return found


def missing(source: Source, name: str, why: str) -> TableError:
    """A column that is not there, with the names nearest to it."""
    near = get_close_matches(name, source.names, n=3, cutoff=0.5)
    some = ", ".join(source.names[:8]) + (", …" if len(source.names) > 8 else "")
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {some}"
    if source.groups:
        hint += f" Whole arrays go by their names: {', '.join(source.groups)}"
    return TableError(f"{source.path}: there is no column {name!r}, {why}; {hint}")


def _said(source: Source, role: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise TableError(
            f"{source.path}: the file does not say which columns are {role}; name them (--{role}); "
            f"there are {', '.join(source.names[:12])}"
        )
    return names


def _layout(
    source: Source,
    columns: Columns,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    dydx: Sequence[str] | None,
) -> Layout:
    derivatives = _derivatives(source, columns, dydx)
    _check_apart(source, {"x": inputs, "y": outputs, "dydx": tuple(derivatives.values())})
    return Layout(columns, inputs, outputs, derivatives)


def _check_apart(source: Source, roles: Mapping[str, Sequence[str]]) -> None:
    """A column has one role: a second is a slip, if not always an error."""
    taken: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in taken:
                both = f"both {taken[name]} and {role}" if taken[name] != role else f"twice {role}"
                raise TableError(f"{source.path}: column {name!r} is {both}")
            taken[name] = role


def _checked_units(
    source: Source, units: Mapping[str, str] | None, *names: Sequence[str]
) -> Mapping[str, str]:
    for name in units or {}:
        if not any(name in group for group in names):
            raise missing(source, name, "given a unit, among x and y")
    return units or {}


def _in_place(
    source: Source, what: str, wanted: Sequence[str], given: Sequence[str]
) -> tuple[str, ...]:
    if given and len(given) != len(wanted):
        raise TableError(
            f"{source.path}: expected {len(wanted)} columns for the model's {what} "
            f"({', '.join(wanted)}), got {len(given)}"
        )
    for name in given or wanted:
        if name not in source.names:
            raise missing(source, name, f"one of the model's {what}")
    return tuple(given or wanted)


def _derivatives(
    source: Source, columns: Columns, dydx: Sequence[str] | None
) -> dict[tuple[int, int], str]:
    slots = {
        columns.derivative(output, input): (k, d)
        for k, output in enumerate(columns.outputs)
        for d, input in enumerate(columns.inputs)
    }
    if dydx is not None:
        return _given(source, slots, dydx)
    found = {slot: name for name, slot in slots.items() if name in source.names}
    for (output, input), name in source.roles.dydx.items():
        if columns.derivative(output, input) in slots:
            found[slots[columns.derivative(output, input)]] = name
    return found


def _given(
    source: Source, slots: Mapping[str, tuple[int, int]], items: Sequence[str]
) -> dict[tuple[int, int], str]:
    """Place derivative columns by their names, by `derivative=column`, or all of them in order."""
    found: dict[tuple[int, int], str] = {}
    plain: list[str] = []
    for item in items:
        for part in [item] if item in source.names else item.split(","):
            target, sign, column = part.strip().partition("=")
            if sign and part not in source.names:
                found[_slot(source, slots, target)] = expand(source, [column], "dydx")[0]
            else:
                plain.append(part)
    names = expand(source, plain, "dydx")
    if len(names) == len(slots) and not any(name in slots for name in names):
        return dict(zip(slots.values(), names, strict=True))
    for name in names:
        found[_slot(source, slots, name)] = name
    return found


def _slot(source: Source, slots: Mapping[str, tuple[int, int]], name: str) -> tuple[int, int]:
    if name not in slots:
        some = list(slots)
        raise TableError(
            f"{source.path}: cannot tell which derivative {name!r} is; name all "
            f"{len(some)} in the order {', '.join(some[:6])}{', …' if len(some) > 6 else ''}, or "
            f"say for example {some[0]}={name}"
        )
    return slots[name]
