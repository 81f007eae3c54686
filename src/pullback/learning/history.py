"""What happened in a training run."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class History:
    """A record of a training run, epoch by epoch.

    Attributes:
        optimizer: "adam", "broyden" or "lbfgs".
        epochs: number of each recorded epoch (full batch: iterations done), counted from 1.
        train: loss terms over the training rows: value, derivative, …, and their total.
        validation: the same over held-out rows; empty when there are none.
        learning_rate: at the end of each recorded epoch.
        events: sentences: the optimizer's choice, collapse, restart, early stop, interruption.
        best_epoch: whose weights were kept; None where the last ones were.
        interrupted: whether Ctrl-C ended it.
        seconds: wall time of training.
    """

    optimizer: str
    epochs: list[int] = field(default_factory=list)
    train: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)
    learning_rate: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    best_epoch: int | None = None
    interrupted: bool = False
    seconds: float = 0.0

    def record(
        self,
        epoch: int,
        learning_rate: float,
        train: dict[str, float],
        validation: dict[str, float] | None,
    ) -> None:
        """Append one epoch."""
        self.epochs.append(epoch)
        self.learning_rate.append(learning_rate)
        for store, terms in ((self.train, train), (self.validation, validation or {})):
            for name, value in terms.items():
                store.setdefault(name, []).append(value)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "History":
        """The inverse of `to_json`.

        >>> History.from_json(History("adam", epochs=[1]).to_json()).epochs
        [1]
        """
        return cls(**fields)
