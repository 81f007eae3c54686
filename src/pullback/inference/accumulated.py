"""The cotangents that losses left on the outputs, as one request, and its answer for any rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.inference.pulling import Request
from pullback.inference.recompute import Replay
from pullback.inference.rows import RowValues


def request_for(
    replay: Replay,
    cotangents: Sequence[RowValues | None],
    wanted: Tensor,
    also: Sequence[int] = (),
) -> Request:
    """Ask for those wanted rows whose gradient can be other than zero (and for `also`)."""
    recording = replay.recording
    touched = torch.zeros(recording.n, dtype=torch.bool)
    for store in cotangents:
        if store is not None:
            touched |= store.nonzero()
    asked = torch.zeros(recording.n, dtype=torch.bool)
    asked[wanted] = True
    if replay.coupled:
        # A row's loss reaches all rows of its batch: each of them gets, and gives, a gradient.
        touched, asked = (_whole_batches(recording.batch_of, mask) for mask in (touched, asked))
    mask = touched & asked
    mask[list(also)] = True
    rows = mask.nonzero().flatten()
    selected = [
        None if store is None else RowValues(len(rows), store.select(rows)) for store in cotangents
    ]
    return Request(rows, selected, len(replay.network.arguments.wrt))


def answer(replay: Replay, request: Request, wanted: Tensor) -> list[RowValues]:
    """The gradients of the wanted rows [R], in their order; zero for those not asked for."""
    if len(wanted) and torch.equal(request.rows, wanted):
        return request.gradients
    place = torch.full((replay.recording.n,), -1)
    place[request.rows] = torch.arange(len(request.rows))
    places = place[wanted]
    known = (places >= 0).nonzero().flatten()
    results = []
    for position, store in zip(replay.network.arguments.wrt, request.gradients, strict=True):
        device = replay.network.setting.device
        result = replay.recording.zero_gradients(position, wanted, device)
        if isinstance(result.value, Tensor) and len(known):
            result.put(known, store.take(places[known]))
        elif len(known):
            for to, gradient in zip(known, store.select(places[known]), strict=True):
                result.put(to[None], gradient[None])
        results.append(result)
    return results


def _whole_batches(batch_of: Tensor, mask: Tensor) -> Tensor:
    batches = torch.zeros(int(batch_of.max()) + 1, dtype=torch.bool)
    batches[batch_of[mask]] = True
    return batches[batch_of]
