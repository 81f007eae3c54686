"""A pick: rows and a loss chosen at one moment, whose gradient is computed when it is read."""

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from pullback.inference.pulling import Request
    from pullback.inference.run import Inference


class Pick:
    """The gradient of one pick's own loss; reading it runs all picks that wait, batch by batch.

    Attributes:
        rows: the picked row numbers [R].
        loss: the value of the loss on these rows, detached.
    """

    def __init__(self, run: "Inference", request: "Request", loss: Tensor) -> None:
        self.rows = request.rows
        self.loss = loss
        self._run = run
        self._request = request

    @property
    def ready(self) -> bool:
        """The gradient has been computed."""
        return self._request.left == 0

    @property
    def gradients(self) -> Any:
        """∂loss / ∂inputs[rows], [R, *D] (in the container of the inputs).

        Raises:
            ReplayError, CoupledRowsError, UnconnectedInputError: see `Inference.input_gradients`.
        """
        if not self.ready:
            self._run.flush()
        return self._run._answered(self._request)

    def __repr__(self) -> str:
        state = "computed" if self.ready else "waiting"
        return f"Pick({len(self.rows)} rows, loss {float(self.loss):.4g}, {state})"


class Queue:
    """The picks that wait; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._waiting: list[weakref.ref[Pick]] = []

    def add(self, pick: Pick) -> None:
        """Let a pick wait."""
        self._waiting.append(weakref.ref(pick))

    def requests(self) -> list["Request"]:
        """What the picks that are still held and not computed ask for."""
        alive = [(ref, ref()) for ref in self._waiting]
        self._waiting = [ref for ref, pick in alive if pick is not None and not pick.ready]
        return [pick._request for _, pick in alive if pick is not None and not pick.ready]

    def __len__(self) -> int:
        return len(self.requests())
