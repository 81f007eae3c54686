"""The run: outputs now, gradients of chosen rows later."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pullback.errors import GradientError, InputError
from pullback.inference import weight_gradients
from pullback.inference.accumulated import answer, request_for
from pullback.inference.explain import Explanation, explain
from pullback.inference.keep import KeepBudget
from pullback.inference.losses import given_cotangents, loss_cotangents
from pullback.inference.picks import Pick, Queue
from pullback.inference.plan import Rules
from pullback.inference.progress import Progress
from pullback.inference.pulling import Request, pull
from pullback.inference.recompute import Replay
from pullback.inference.rows import Rows, RowValues, row_numbers
from pullback.inference.saliency import one_hot_cotangents


class Inference:
    """The outputs of one inference over N rows, and the way back to its inputs.

    `outputs` is a leaf: a loss on any of its rows back-propagates to the outputs and stops there,
    so it is cheap and never goes through a graph a second time. What it leaves, a cotangent
    c_i = ∂loss/∂y_i a row, is pulled through the network when a gradient is asked for:

        ∂loss/∂x_i = c_iᵀ · ∂f(x_i)/∂x_i,

    on recomputed rows, `batch_size` of them at a time, each verified against its recorded output.
    Made by `infer`.

    Calls of forward (and of hooks on it): one for each batch of the first pass, and one for each
    batch recomputed (and one more if graphs are kept); backward hooks run once for each batch
    walked.
    """

    def __init__(
        self, replay: Replay, batch_size: int, budget: KeepBudget, progress: Progress
    ) -> None:
        self._replay = replay
        self._rules = Rules(batch_size, replay.coupled)
        self._budget = budget
        self._progress = progress
        self._queue = Queue()
        self._outputs = self._recording.layout.fill([s.value for s in self._recording.outputs])

    @property
    def outputs(self) -> Any:
        """The network's outputs, [N, K] or whatever a row of it is, in its own container.

        Leaves that require grad (where they are floating): `run.outputs.grad` holds the cotangents
        that losses left so far; they add up, as .grad does, until `clear_cotangents`.
        """
        return self._outputs

    @property
    def done(self) -> Tensor:
        """Which rows were inferred [N]: all, unless the first pass was interrupted."""
        return self._recording.done

    def __len__(self) -> int:
        return self._recording.n

    def __repr__(self) -> str:
        rows = int(self.done.sum())
        return f"Inference({rows} of {len(self)} rows, {len(self._queue)} picks waiting)"

    @torch.inference_mode(False)
    def input_gradients(self, rows: Rows = None) -> Any:
        """Pull what losses left on `outputs` back to the inputs of these rows.

        g[r] = ∂(sum of all losses so far)/∂inputs[rows[r]], [R, *D]: never 1/N of it, unless the
        loss itself is a mean. Rows without a cotangent get zeros and cost nothing. The cotangents
        stay: asking twice gives the same answer twice.

        Kinks: a handful of rows may be rounded differently from a batch, and where a ReLU or a
        max-pool lies at its kink, a last digit flips the gradient of that row (run alone, one row
        of 64 was off by 0.7 %). Fewer than `smallest_batch` rows are therefore filled up, so that
        asking for rows one by one costs that many each; pick them lazily instead (`pick`).

        Args:
            rows: numbers, a slice or a mask; default all. One number is one row.

        Raises:
            GradientError: no loss was back-propagated to `outputs`.
            ReplayError: weights, inputs or outputs are not what they were; the message says which.
            CoupledRowsError: rows of a batch turn out to depend on each other.
            UnconnectedInputError: the outputs do not depend on the inputs.

        >>> import torch, pullback.inference as pb
        >>> run = pb.infer(lambda x: x**2, torch.tensor([[1.0], [2.0], [3.0]]))
        >>> run.outputs[1:].sum().backward()
        >>> run.input_gradients([2, 0])
        tensor([[6.], [0.]])
        """
        api = "run.input_gradients"
        wanted = self._rows(api, rows)
        cotangents = [store.gradients() for store in self._recording.outputs]
        if all(store is None for store in cotangents):
            raise GradientError(
                f"{api}: no loss was back-propagated to run.outputs yet, so there is nothing to "
                "pull back. Call loss.backward() on a loss of run.outputs[rows] first, or use "
                "run.pick(rows, loss_fn)."
            )
        request = request_for(self._replay, cotangents, wanted)
        self._pull(api, [request])
        return self._packed(answer(self._replay, request, wanted))

    @torch.inference_mode(False)
    def pull(self, rows: Rows, cotangents: Any) -> Any:
        """Pull given cotangents back at once; what losses left on `outputs` plays no part.

        g[r] = cotangents[r]ᵀ · ∂f(x)/∂x at x = inputs[rows[r]], [R, *D]. A row may appear several
        times, with a cotangent and an answer each.

        Args:
            rows: numbers, a slice or a mask, R rows.
            cotangents: [R, K], in the container of `outputs`.

        Raises:
            ShapeError, DtypeError, InputError: the cotangents do not fit outputs[rows].
            GradientError: as for `input_gradients`.

        >>> import torch, pullback.inference as pb
        >>> run = pb.infer(lambda x: x**2, torch.tensor([[1.0, 2.0]]))
        >>> run.pull([0, 0], torch.eye(2))
        tensor([[2., 0.], [0., 4.]])
        """
        api = "run.pull"
        wanted = self._rows(api, rows)
        self._check_distinct(api, wanted)
        stores = given_cotangents(self._recording, wanted, cotangents)
        request = Request(wanted, stores, self._inputs)
        self._pull(api, [request])
        return self._answered(request)

    @torch.inference_mode(False)
    def pick(self, rows: Rows, loss_fn: Callable[..., Tensor], *per_row_args: Any) -> Pick:
        """Choose rows and a loss now; the gradient is computed when it is read.

        `pick.gradients[r]` = ∂loss_fn(outputs[rows], …)/∂inputs[rows[r]]: this pick's own, so that
        a row in two picks has two answers. Picks wait, and reading one runs all that wait,
        `batch_size` rows at a time; picking row by row therefore costs what picking by 32 costs.

        Args:
            rows: numbers, a slice or a mask, R rows.
            loss_fn: called with outputs[rows] in their container, and the rows of each further
                argument; returns a scalar, or one loss a row (then they are summed).
            per_row_args: values for all N rows, such as labels.

        Raises:
            InputError: an argument is not one value a row.
            UnconnectedInputError: the loss does not depend on the outputs.

        >>> import torch, pullback.inference as pb
        >>> run = pb.infer(lambda x: x**2, torch.tensor([[1.0], [2.0], [3.0]]))
        >>> picks = [run.pick(rows, torch.sum) for rows in ([0, 2], [2])]
        >>> [pick.gradients.flatten().tolist() for pick in picks]
        [[2.0, 6.0], [6.0]]
        """
        api = "run.pick"
        wanted = self._rows(api, rows)
        self._check_distinct(api, wanted)
        stores, loss = loss_cotangents(self._recording, wanted, loss_fn, per_row_args)
        pick = Pick(self, Request(wanted, stores, self._inputs), loss)
        self._queue.add(pick)
        return pick

    @torch.inference_mode(False)
    def flush(self) -> None:
        """Compute all picks that wait; after an interrupt, those that are complete stay so."""
        self._pull("run.flush", self._queue.requests())

    @torch.inference_mode(False)
    def gradient_of(
        self, index: int | tuple[int, ...] | Tensor, rows: Rows = None, *, output: str | None = None
    ) -> Any:
        """The gradient of one output a row: ∂y[i, index]/∂inputs[i], [R, *D] (saliency).

        Args:
            index: which of a row's outputs; a tuple for several axes, () for a scalar row, or a
                tensor [R] with an index of its own for each row.
            rows: as in `input_gradients`; default all.
            output: the name of the tensor, if there are several ("logits").

        Raises:
            InputError: there is no such output.
            GradientError: as for `input_gradients`.

        >>> import torch, pullback.inference as pb
        >>> run = pb.infer(lambda x: torch.cat([x, x**2], 1), torch.tensor([[1.0], [3.0]]))
        >>> run.gradient_of(1)
        tensor([[2.], [6.]])
        >>> run.gradient_of(run.outputs.argmax(1))
        tensor([[1.], [6.]])
        """
        api = "run.gradient_of"
        wanted = self._rows(api, rows)
        self._check_distinct(api, wanted)
        stores = one_hot_cotangents(self._recording, wanted, index, output)
        request = Request(wanted, stores, self._inputs)
        self._pull(api, [request])
        return self._answered(request)

    @torch.inference_mode(False)
    def backward(self, loss: Tensor, *, input_gradients: bool = False) -> Any:
        """Back-propagate a loss that may couple all rows into the weights, exactly.

        Adds dL/dθ to .grad of every weight, as `loss.backward()` on one big graph would, batch by
        batch (see NOTE [gradient caching]); a loss scaled for gradient accumulation or by a
        GradScaler scales all of it, and a data-parallel model reduces once, with the last batch.
        If it raises, .grad is as it was before.

        Args:
            loss: a scalar computed from `outputs`; weights used in it get their gradient too.
            input_gradients: return ∂L/∂inputs [N, *D] as well, from the same pass; with the scale
                of the loss.

        Raises:
            InputError: the loss is not a scalar.
            UnconnectedInputError: the loss does not depend on `outputs`, or they on no weight.
            ReplayError, CoupledRowsError: as for `input_gradients`.

        >>> import torch, pullback.inference as pb
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> run = pb.infer(net, torch.tensor([[1.0], [2.0], [4.0]]), batch_size=2)
        >>> run.backward((run.outputs / net.weight.detach()).prod())   # couples all rows: w³·8/w³
        >>> bool((net.weight.grad * net.weight).sub(24).abs() < 1e-3)
        True
        """
        usable = weight_gradients.kept_graphs_usable(self._replay)
        rules = Rules(self._rules.batch_size, self._rules.coupled, usable)
        found = weight_gradients.backward(
            self._replay, loss, rules, self._progress, inputs=input_gradients
        )
        return None if found is None else self._packed(found)

    def clear_cotangents(self) -> None:
        """Forget what losses left on `outputs`, as zero_grad(set_to_none=True) would."""
        for tensor in self._recording.tensors:
            tensor.grad = None

    def explain(self) -> Explanation:
        """What was decided about batches, kept graphs, recomputing and tolerance, and why."""
        return explain(self._replay, self._rules, self._budget)

    def save(self, folder: str | Path) -> None:
        """Write outputs, cotangents and what recomputing takes; picks that wait are not written.

        Inputs that lie in memory are written too; a mapped file, a data set or a loader is handed
        in again when the run is loaded.

        Raises:
            FileError: the folder's parent is not there.
        """
        from pullback.inference.storage import save

        save(self, folder)

    @classmethod
    @torch.inference_mode(False)
    def load(
        cls, folder: str | Path, model: Callable[..., Any], inputs: Any = None, **options: Any
    ) -> "Inference":
        """Read a saved run; the model must be the one that was run, weight by weight.

        A few rows are recomputed at once, so that a model or inputs that do not fit are found here.

        Args:
            folder: what `save` wrote.
            model: the network, with the weights it had.
            inputs: as in `infer`, where they were not saved.
            options: `unpack`, `device` and `progress`, as in `infer`.

        Raises:
            ModelFileError: not a saved run, or the weights are others.
            ReplayError: the inputs are others.
        """
        from pullback.inference.storage import load

        return load(folder, model, inputs, **options)

    def _packed(self, stores: list[RowValues]) -> Any:
        """Gradients in the container of the inputs."""
        return self._replay.network.arguments.pack([store.value for store in stores])

    @property
    def _recording(self) -> Any:
        return self._replay.recording

    @property
    def _inputs(self) -> int:
        return len(self._replay.network.arguments.wrt)

    def _answered(self, request: Request) -> Any:
        if len(request.rows):
            return self._packed(request.gradients)
        return self._packed(answer(self._replay, request, request.rows.new_zeros(0)))

    def _pull(self, api: str, requests: list[Request]) -> None:
        pull(api, self._replay, requests, self._rules, self._progress)

    def _rows(self, api: str, rows: Rows) -> Tensor:
        wanted = row_numbers(api, rows, len(self))
        missing = wanted[~self.done[wanted]]
        if len(missing):
            raise InputError(
                f"{api}: row {int(missing[0])} was not inferred, since the first pass was "
                "interrupted. run.done says which rows are there."
            )
        return wanted

    def _check_distinct(self, api: str, rows: Tensor) -> None:
        if self._rules.coupled and len(rows.unique()) < len(rows):
            raise InputError(
                f"{api}: expected each row once, since with coupled='batch' the rows of a call "
                "share one answer. Use one call for each repetition."
            )
