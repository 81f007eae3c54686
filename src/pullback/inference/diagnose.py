"""Why recomputed outputs differ from the recorded ones: the likely cause, and the way out.

Runs only when a difference was found, so it may take its time: it recomputes more.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.errors import CoupledRowsError, GradientError, ReplayError
from pullback.inference.plan import Task

if TYPE_CHECKING:
    from pullback.inference.recompute import Replay


def mismatch(replay: "Replay", api: str, task: Task, rows: Tensor, off: Tensor) -> GradientError:
    """The error that names the likely cause."""
    worst = int(off.argmax())
    found = (
        f"{api}: recomputed outputs differ from the recorded ones in "
        f"{int((off > replay.tolerance.allowed).sum())} of {len(rows)} rows (most in row "
        f"{int(rows[worst])}: {float(off[worst]):.1e} of its size, allowed "
        f"{replay.tolerance.allowed:.1e})"
    )
    if changed := replay.record.changed():
        cause = (
            f"the weights were edited behind autograd's back ({', '.join(changed[:3])}; .data "
            "counts no version). Restore them, or call infer again"
        )
    elif not _repeats(replay, api, task, rows):
        cause = (
            "the network is not repeatable: it draws from a random generator of its own, carries "
            "state from call to call, or runs a non-deterministic kernel. Draw from torch's, "
            "numpy's or Python's global stream, which are replayed; pass state as an input; or "
            "set torch.use_deterministic_algorithms(True)"
        )
    elif task.batch is None and _alike_in_its_batch(replay, api, rows[worst]):
        return CoupledRowsError(
            f"{found}. They agree when its whole batch is run again, so the rows of a batch "
            "depend on each other (statistics, attention or padding across the batch). Separate "
            "the rows, or say coupled='batch': batches of the first pass are then the unit, and a "
            "gradient includes what a row does to the others of its batch."
        )
    elif replay.record.carried:
        cause = (
            "hidden state is carried from one batch to the next (the buffers "
            f"{', '.join(replay.record.carried[:3])} changed during infer). Reset it at the start "
            "of forward, or pass it in and out"
        )
    else:
        cause = (
            "hidden state was carried between the batches of the first pass (an attribute that "
            "forward writes), the network's code or a precision switch changed, or its kernels "
            "round more than expected. Reset the state in forward, call infer again, or, for "
            f"rounding alone, allow it: infer(..., tolerance={2 * float(off[worst]):.0e})"
        )
    return ReplayError(f"{found}. Likely cause: {cause}.")


def _repeats(replay: "Replay", api: str, task: Task, rows: Tensor) -> bool:
    """Two more runs, one after the other, agree with each other."""
    first, second = (_outputs(replay, api, rows, task) for _ in range(2))
    return all(
        torch.allclose(a, b, rtol=1e-5, equal_nan=True) for a, b in zip(first, second, strict=True)
    )


def _alike_in_its_batch(replay: "Replay", api: str, row: Tensor) -> bool:
    """The row comes out as recorded when its batch of the first pass is run again."""
    batch = replay.recording.batches[int(replay.recording.batch_of[row])]
    outputs = _outputs(replay, api, batch.rows, Task(batch.rows, (), batch))
    off = replay.compare(batch.rows, outputs)
    return bool(off[replay.recording.slot_of[row]] <= replay.tolerance.allowed)


def _outputs(replay: "Replay", api: str, rows: Tensor, task: Task) -> list[Tensor]:
    with replay.record.once_more():
        return [y.detach() for y in replay.run(api, rows, task, inputs=False).outputs]
