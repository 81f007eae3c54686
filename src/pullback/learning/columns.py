"""Names and units of inputs and outputs; they travel from a file to the model to the report."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pullback.errors import InputError


@dataclass(frozen=True)
class Columns:
    """Names of D inputs and K outputs, with units where they are known.

    The derivative ∂output/∂input has a name made of both, and the unit that follows from theirs.

    Attributes:
        inputs: D names.
        outputs: K names.
        units: unit by input or output name; a name left out has none.

    Raises:
        InputError: a name comes twice, or a unit is given for a name that is not there.

    >>> columns = Columns(("spot", "vol"), ("price",), {"price": "USD", "spot": "EUR"})
    >>> columns.derivative("price", "spot"), columns.unit("dprice/dspot")
    ('dprice/dspot', 'USD/EUR')
    >>> Columns.default(inputs=2, outputs=1)
    Columns(inputs=('x0', 'x1'), outputs=('y',), units={})
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        object.__setattr__(self, "units", dict(self.units))
        names = (*self.inputs, *self.outputs)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InputError(f"Columns: expected each name once, got {twice[0]!r} twice")
        unknown = [name for name in self.units if name not in names]
        if unknown:
            raise InputError(
                f"Columns: a unit is given for {unknown[0]!r}, which is no input or output; "
                f"those are {', '.join(names)}"
            )

    @classmethod
    def default(cls, inputs: int, outputs: int) -> "Columns":
        """Names where none are known: x0, x1, … and y (or y0, y1, …)."""
        several = outputs > 1
        return cls(
            tuple(f"x{d}" for d in range(inputs)),
            tuple(f"y{k}" for k in range(outputs)) if several else ("y",) * outputs,
        )

    @staticmethod
    def derivative(output: str, input: str) -> str:
        """The name of ∂output/∂input as a column, such as dprice/dspot."""
        return f"d{output}/d{input}"

    @property
    def derivatives(self) -> tuple[str, ...]:
        """All K·D names of derivatives, the inputs running fastest, as in dydx [N, K, D]."""
        return tuple(self.derivative(o, i) for o in self.outputs for i in self.inputs)

    def unit(self, name: str) -> str:
        """The unit of an input, an output or a derivative; empty where it is not known."""
        if name in self.units:
            return self.units[name]
        for output in self.outputs:
            for input in self.inputs:
                if name == self.derivative(output, input):
                    return _ratio(self.units.get(output, ""), self.units.get(input, ""))
        return ""

    def label(self, name: str) -> str:
        """The name with its unit in brackets, as an axis shows it."""
        unit = self.unit(name)
        return f"{name} [{unit}]" if unit else name

    def to_json(self) -> dict[str, object]:
        """A plain dict of lists and strings."""
        return {
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "units": dict(self.units),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> "Columns":
        """The inverse of `to_json`.

        Raises:
            InputError: `record` is not what `to_json` writes.
        """
        inputs, outputs = record.get("inputs"), record.get("outputs")
        units = record.get("units", {})
        if not (_are_names(inputs) and _are_names(outputs) and isinstance(units, Mapping)):
            raise InputError(
                "Columns: expected a dict with lists of names under inputs and outputs, and a dict "
                f"under units, got {dict(record)!r}"
            )
        if not _are_names(list(units.values())):
            raise InputError(f"Columns: expected units to be text, got {dict(units)!r}")
        return cls(tuple(inputs), tuple(outputs), units)  # type: ignore[arg-type]


def _are_names(value: object) -> bool:
    plain = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    return plain and all(isinstance(name, str) for name in value)  # type: ignore[attr-defined]


def _ratio(above: str, below: str) -> str:
    """The unit of a quotient; nothing is said when either is unknown."""
    if not above or not below:
        return ""
    return "1" if above == below else f"{_grouped(above)}/{_grouped(below)}"


def _grouped(unit: str) -> str:
    return f"({unit})" if any(sign in unit for sign in "/·* ") else unit
