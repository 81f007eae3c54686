"""The scikit-learn estimator: fit on values and derivatives, predict both."""

import copy
import operator
import os
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from pullback.errors import InputError, LabelError, LabelWarning, ShapeError
from pullback.learning.activations import Elementwise
from pullback.learning.arrays import Labels, as_inputs, as_labels, like_input
from pullback.learning.columns import Columns
from pullback.learning.data import DifferentialData
from pullback.learning.domain import Domain
from pullback.learning.loss import FLOOR
from pullback.learning.networks import MLP, Twin
from pullback.learning.training import Options, train

Array = NDArray[Any]


class DifferentialRegressor(RegressorMixin, BaseEstimator):
    """A neural network trained on values and derivatives, that predicts both.

    Standardises x, y and dydx by itself (never put a scaler in front: it would leave dydx in raw
    units), minimises the mean of squared errors in values and in derivatives, each derivative
    weighted by its own size (see `DifferentialLoss`), and returns everything in the units it was
    given.

    Args:
        hidden: width of each hidden layer.
        activation: "softplus", "tanh", "silu", "gelu", "sin", …, a module, or a callable.
        activation_derivative: its derivative, if it is a callable; None takes autograd's.
        omega_0: factor on every hidden pre-activation.
        module: a network of your own instead, [N, D] to [N, K] with independent rows; it is
            copied, and trained from the weights it has.
        optimizer: "adam" (one-cycle schedule); "broyden" or "lbfgs" (all rows in every step, for
            few without noise: with a dense matrix of curvature, which takes networks of some
            thousand weights, or without one); or "auto", which looks at the labels;
            `history_.events` says what it chose and why.
        epochs: passes over the rows (full batch: iterations); None: at least 1,600 steps of Adam.
        batch_size: rows a step; None takes a thirty-second of the rows, at least 256.
        learning_rate: Adam's peak; None takes 0.01 where labels are noisy, 0.03 where exact.
        weight_decay: pulls weights to zero; None takes 0.01 an input, at most 0.3, for Adam where
            labels are noisy or may be, and next to none elsewhere.
        derivative_weight: λ, the weight of one derivative against one value; 0 ignores them.
        derivative_floor: ε, keeps nearly zero derivatives from taking over the loss.
        second_order_weight: the weight of one second-order label against one value.
        early_stopping: hold out rows, stop when they get no better, keep the best weights.
        validation_fraction: how many are held out when no validation data is given.
        patience: epochs without improvement before stopping; None takes a quarter of them.
        restarts: how often to try again when training ends as a constant.
        check_labels: what to do when dydx contradicts y: "raise", "warn", or False to not look.
        random_state: seed of weights and shuffles; the same seed gives the same bits on a CPU.
        dtype: of the network: torch.float32 or torch.float64 (or their names); None takes
            float32 for Adam and float64 for a full batch.
        device: of the network.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a folder for the state of an interrupted run; the same fit continues from it.

    Attributes:
        n_features_in_: D.
        columns_: `Columns`: names of inputs and outputs, and units.
        domain_: `Domain`: where the training rows lay.
        history_: `History`: loss terms by epoch, the optimizer and why, what happened.
        label_report_: `LabelReport` of the label check; None where it did not run.
        surrogate_: `Surrogate`: network and scalings.

    Source: Huge & Savine, Differential Machine Learning, 2020 (arXiv 2005.02347).

    >>> x = np.linspace(-2, 2, 20)[:, None]
    >>> model = DifferentialRegressor(hidden=(16,), activation="tanh", epochs=300, random_state=0)
    >>> model = model.fit(x, np.sin(x[:, 0]), np.cos(x))
    >>> y, dydx = model.predict([[0.5]], return_gradient=True)
    >>> bool(abs(y[0] - np.sin(0.5)) < 1e-3 and abs(dydx[0, 0] - np.cos(0.5)) < 1e-2)
    True
    """

    def __init__(
        self,
        hidden: Sequence[int] = (20, 20, 20, 20),
        activation: str | nn.Module | Elementwise = "softplus",
        *,
        activation_derivative: Elementwise | None = None,
        omega_0: float = 1.0,
        module: nn.Module | None = None,
        optimizer: str = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        derivative_weight: float = 1.0,
        derivative_floor: float = FLOOR,
        second_order_weight: float = 1.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int | None = None,
        restarts: int = 2,
        check_labels: Literal["raise", "warn", False] = "raise",
        random_state: int | np.random.RandomState | None = None,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str | None = None,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.activation_derivative = activation_derivative
        self.omega_0 = omega_0
        self.module = module
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.derivative_weight = derivative_weight
        self.derivative_floor = derivative_floor
        self.second_order_weight = second_order_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.restarts = restarts
        self.check_labels = check_labels
        self.random_state = random_state
        self.dtype = dtype
        self.device = device
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: Any,
        dydx: Any = None,
        *,
        sample_weight: Any = None,
        dydx_weight: Any = None,
        directions: Any = None,
        dydv: Any = None,
        hvp: Any = None,
        validation_data: tuple[Any, ...] | None = None,
        columns: Columns | None = None,
    ) -> "DifferentialRegressor":
        """Train on values and on what is known of their derivatives; NaN is unknown.

        Args:
            X: [N, D]: numpy, torch, or a pandas, polars or pyarrow frame.
            y: [N] or [N, K].
            dydx: ∂y/∂x, [N, D] for one output or [N, K, D]; a frame or a mapping by input name.
            sample_weight: [N].
            dydx_weight: factors on squared errors of derivatives, broadcastable to [N, K, D].
            directions: v [N, D], for `dydv` and `hvp`.
            dydv: ∂y/∂x·v, shaped like y.
            hvp: ∂²y/∂x² v, shaped like dydx.
            validation_data: (X, y) or (X, y, dydx), held out; the best weights on it are kept.
            columns: names and units; None takes those of the frames.

        Raises:
            LabelError: dydx contradicts y (see `check_labels`).
            ShapeError: shapes do not belong together; the message names the axes.
            InputError: NaN or infinity in X, no label known, a parameter out of range.
        """
        labels = as_labels(
            "DifferentialRegressor.fit", X, y, dydx, sample_weight=sample_weight,
            dydx_weight=dydx_weight, estimator=self,
        )  # fmt: skip
        self.columns_ = columns or _columns(labels)
        self.label_report_ = self._look_at(labels)
        data = _as_data(labels, _extra_labels(labels, directions, dydv, hvp))
        held_out = None if validation_data is None else self._held_out(validation_data, labels)
        self.surrogate_, self.history_ = train(
            self._make_network(data), data, self._options(), held_out
        )
        self.domain_ = Domain.from_rows(labels.x.astype(float))
        self.single_output_ = labels.single_output
        return self

    def predict(self, X: Any, return_gradient: bool = False) -> Any:
        """Values, and with `return_gradient` their derivatives, in the units of the labels.

        Args:
            X: [N, D].
            return_gradient: return (y, dydx).

        Returns:
            y [N] or [N, K] as in fit, and dydx [N, D] or [N, K, D]; tensors for a tensor, frames
            after `set_output`, else numpy.

        Raises:
            ShapeError: X is not [N, D].
        """
        x = self._inputs(X, "predict")
        if not return_gradient:
            return self._hand_out(self.surrogate_.values(x), X, self.columns_.outputs)
        y, jac = self.surrogate_.values_and_jacobian(x)
        y_out = self._hand_out(y, X, self.columns_.outputs)
        return y_out, self._hand_out(jac, X, self.columns_.derivatives)

    def predict_gradient(self, X: Any) -> Any:
        """∂y/∂x, [N, D] or [N, K, D]."""
        return self.predict(X, return_gradient=True)[1]

    def predict_hessian(self, X: Any) -> Any:
        """∂²y/∂x², [N, D, D] or [N, K, D, D]: numpy, or a tensor for a tensor."""
        x = self._inputs(X, "predict_hessian")
        return self._like(self.surrogate_.hessian(x), X)

    def set_output(self, *, transform: str | None = None) -> "DifferentialRegressor":
        """Let `predict` return frames: "pandas", "polars", or "default" for arrays.

        Derivatives come as one column each, named doutput/dinput.
        """
        if transform not in (None, "default", "pandas", "polars"):
            raise InputError(
                f"set_output: expected 'default', 'pandas' or 'polars', got {transform!r}"
            )
        if transform is not None:
            # Where scikit-learn keeps it for transformers: clone() carries it on.
            self._sklearn_output_config = {"transform": transform}
        return self

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model into a folder: safetensors and JSON, whole or not at all.

        Raises:
            ModelFileError: the folder holds something that is not a saved model.
            InputError: the activation is a callable, which a file can't name.
        """
        from pullback.learning.storage import save

        check_is_fitted(self, "surrogate_")
        return save(self, folder)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, module: nn.Module | None = None
    ) -> "DifferentialRegressor":
        """Read a model written by `save`; no code in it is run.

        Args:
            folder: what `save` wrote.
            module: for a model fitted with a module of your own: one of the same architecture.

        Raises:
            ModelFileError: missing, corrupt, truncated, or written by a newer version.
        """
        from pullback.learning.storage import load

        return load(folder, module=module)

    def _look_at(self, labels: Labels) -> Any:
        if self.check_labels not in ("raise", "warn", False):
            raise InputError(
                f"check_labels: expected 'raise', 'warn' or False, got {self.check_labels!r}"
            )
        if labels.dydx is None or self.check_labels is False:
            return None
        from pullback.learning.label_check import check_labels

        report = check_labels(
            labels.x.astype(float), labels.y.astype(float), labels.dydx.astype(float),
            names=self.columns_.inputs, output_names=self.columns_.outputs,
        )  # fmt: skip
        if not report.ok:
            found = ". ".join(f"{f.sentence}; {f.remedy}" for f in report.findings)
            message = f"DifferentialRegressor.fit: dydx contradicts y: {found}."
            if self.check_labels == "raise":
                raise LabelError(f"{message} If you are sure of them, pass check_labels=False.")
            warnings.warn(message, LabelWarning, stacklevel=3)
        return report

    def _held_out(self, given: tuple[Any, ...], labels: Labels) -> DifferentialData:
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise InputError("validation_data: expected (X, y) or (X, y, dydx)")
        held = as_labels("DifferentialRegressor.fit, validation_data", *given)
        if held.x.shape[1] != labels.x.shape[1] or held.y.shape[1] != labels.y.shape[1]:
            raise ShapeError(
                f"validation_data: expected {labels.x.shape[1]} inputs and {labels.y.shape[1]} "
                f"outputs as in training, got {held.x.shape[1]} and {held.y.shape[1]}"
            )
        data = _as_data(held, {})
        return data if labels.dydx is not None else DifferentialData(data.x, data.y)

    def _make_network(self, data: DifferentialData) -> Any:
        inputs, outputs = data.x.shape[1], data.y.shape[1]

        def make(generator: torch.Generator, dtype: torch.dtype) -> Twin:
            if self.module is not None:
                return Twin(copy.deepcopy(self.module).to(device="cpu", dtype=dtype))
            return Twin(
                MLP(
                    inputs,
                    outputs,
                    tuple(self.hidden),
                    copy.deepcopy(self.activation),
                    activation_derivative=self.activation_derivative,
                    omega_0=self.omega_0,
                    generator=generator,
                    dtype=dtype,
                )
            )

        return make

    def _options(self) -> Options:
        if self.checkpoint is not None and self.random_state is None:
            raise InputError(
                "checkpoint: expected a random_state with it: without one, every fit is another "
                "run, and none can continue what an earlier one wrote"
            )
        return Options(
            optimizer=self.optimizer, epochs=_whole(self.epochs),
            batch_size=_whole(self.batch_size),
            learning_rate=self.learning_rate, weight_decay=self.weight_decay,
            derivative_weight=self.derivative_weight, derivative_floor=self.derivative_floor,
            second_order_weight=self.second_order_weight, early_stopping=self.early_stopping,
            validation_fraction=self.validation_fraction, patience=_whole(self.patience),
            restarts=0 if self.module is not None else self.restarts, seed=_seed(self.random_state),
            dtype=_dtype(self.dtype), device=self.device, progress=self.progress,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
        )  # fmt: skip

    def _inputs(self, X: Any, call: str) -> Array:
        check_is_fitted(self, "surrogate_")
        x = as_inputs(
            f"DifferentialRegressor.{call}", X, n_features=self.n_features_in_, estimator=self
        )
        return x.astype(np.float64, copy=False)

    def _squeezed(self, result: Array) -> Array:
        return result[:, 0] if self.single_output_ else result

    def _hand_out(self, result: Array, X: Any, names: tuple[str, ...]) -> Any:
        kind = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if kind == "default":
            return self._like(result, X)
        flat = result.reshape(len(result), -1)
        # A list has an `index` too: a method.
        return _frame(kind, flat, names, X.index if hasattr(X, "iloc") else None)

    def _like(self, result: Array, X: Any) -> Any:
        out = self._squeezed(result)
        single = getattr(X, "dtype", None) == np.float32
        return like_input(out.astype(np.float32) if single else out, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _columns(labels: Labels) -> Columns:
    default = Columns.default(labels.x.shape[1], labels.y.shape[1])
    inputs = labels.input_names or default.inputs
    outputs = labels.output_names or default.outputs
    return Columns(inputs, outputs)


def _as_data(labels: Labels, extra: dict[str, torch.Tensor]) -> DifferentialData:
    weight = labels.sample_weight
    return DifferentialData(
        _tensor(labels.x),
        _tensor(labels.y),
        None if labels.dydx is None else _tensor(labels.dydx),
        # A mean of one: twice all weights is the same problem.
        sample_weight=None if weight is None else _tensor(weight / weight.mean()),
        dydx_weight=None if labels.dydx_weight is None else _tensor(labels.dydx_weight),
        **extra,
    )


def _extra_labels(labels: Labels, directions: Any, dydv: Any, hvp: Any) -> dict[str, torch.Tensor]:
    n, d = labels.x.shape
    k = labels.y.shape[1]
    shapes = {"directions": (n, d), "dydv": (n, k), "hvp": (n, k, d)}
    given = {"directions": directions, "dydv": dydv, "hvp": hvp}
    extra = {}
    for name, value in given.items():
        if value is None:
            continue
        array = np.asarray(
            torch.as_tensor(value).detach().cpu() if isinstance(value, torch.Tensor) else value,
            float,
        )
        if name != "directions" and k == 1 and array.shape == (n, *shapes[name][2:]):
            array = array.reshape(shapes[name])
        if array.shape != shapes[name]:
            raise ShapeError(
                f"DifferentialRegressor.fit: expected {name} of shape {shapes[name]}, got "
                f"{array.shape}"
            )
        if np.isinf(array).any():
            raise InputError(f"DifferentialRegressor.fit: {name} must not hold infinity")
        extra[name] = _tensor(array)
    return _with_known_directions(extra)


def _with_known_directions(extra: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A row without labels along v needs no v: NaN there becomes 0, lest it reach the weights."""
    if "directions" not in extra:
        return extra
    v = extra["directions"]
    unknown = v.isnan().any(1)
    labels = [extra[name].flatten(1) for name in ("dydv", "hvp") if name in extra]
    lost = [unknown & ~label.isnan().all(1) for label in labels]
    if any(bool(rows.any()) for rows in lost):
        raise InputError(
            "DifferentialRegressor.fit: directions must be known in every row with a label in "
            "dydv or hvp; NaN there needs NaN in both"
        )
    return {**extra, "directions": torch.where(unknown[:, None], 0.0, v)}


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _seed(random_state: Any) -> int:
    # None: fresh entropy, and not numpy's global stream, which is the caller's.
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _whole(number: Any) -> int | None:
    # A grid of numpy's integers would end in files that know only Python's.
    return None if number is None else operator.index(number)


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    known = {"float32": torch.float32, "float64": torch.float64}
    found = known.get(dtype) if isinstance(dtype, str) else dtype
    if dtype is not None and found not in known.values():
        raise InputError(
            f"dtype: expected float32 or float64, got {dtype!r}: half precision loses "
            "second derivatives, which a loss on first ones needs"
        )
    return found


def _frame(kind: str, values: Array, names: tuple[str, ...], index: Any) -> Any:
    from pullback._extras import require

    if kind == "pandas":
        return require("pandas", extra="frames", purpose="set_output('pandas')").DataFrame(
            values, columns=list(names), index=index
        )
    polars = require("polars", extra="frames", purpose="set_output('polars')")
    return polars.DataFrame({name: values[:, i] for i, name in enumerate(names)})
