"""Save and load a fitted model: safetensors and JSON, nothing that runs."""

import copy
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pullback import __version__
from pullback.errors import InputError, ModelFileError
from pullback.learning.activations import as_activation
from pullback.learning.columns import Columns
from pullback.learning.domain import Domain
from pullback.learning.history import History
from pullback.learning.networks import MLP, Twin
from pullback.learning.regressor import DifferentialRegressor
from pullback.learning.scaling import Scaling
from pullback.learning.surrogate import Surrogate
from pullback.learning.tensor_tree import clone_state, read_folder, write_folder

KIND, FORMAT = "pullback model", 1

# Hyper-parameters that a file holds; the others name objects or places of the moment.
_NOT_STORED = ("module", "activation", "activation_derivative", "random_state", "device",
               "progress", "checkpoint", "dtype")  # fmt: skip


def save(model: DifferentialRegressor, folder: str | os.PathLike[str]) -> Path:
    """Write a fitted model. See `DifferentialRegressor.save`."""
    surrogate: Surrogate = model.surrogate_
    config = {
        "kind": KIND,
        "format": FORMAT,
        "pullback": __version__,
        "versions": {"torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "network": _describe(surrogate.twin.module),
        "dtype": str(next(surrogate.twin.parameters()).dtype).removeprefix("torch."),
        "parameters": {k: v for k, v in model.get_params().items() if k not in _NOT_STORED},
        "columns": model.columns_.to_json(),
        "named": hasattr(model, "feature_names_in_"),
        "single_output": bool(model.single_output_),
        "reach": model.domain_.reach,
        "history": model.history_.to_json(),
    }  # fmt: skip
    domain = model.domain_
    state = {
        "weights": clone_state(surrogate.twin),
        "scaling": surrogate.scaling.tensors(),
        "domain": {
            name: torch.from_numpy(np.array(getattr(domain, name)))
            for name in ("lower", "upper", "centre", "whitening")
        },
    }
    return write_folder(folder, config, state)


def load(
    folder: str | os.PathLike[str], *, module: nn.Module | None = None
) -> DifferentialRegressor:
    """Read a fitted model. See `DifferentialRegressor.load`."""
    config, state = read_folder(folder, kind=KIND, version=FORMAT)
    try:
        twin = Twin(_build(config, module, folder))
        twin.load_state_dict(state["weights"])
        scaling = Scaling(**state["scaling"])
        model = DifferentialRegressor(**_parameters(config), module=module)
        model.surrogate_ = Surrogate(twin.eval(), scaling, len(scaling.y_scale))
        arrays = {name: tensor.numpy() for name, tensor in state["domain"].items()}
        model.domain_ = Domain(**arrays, reach=config["reach"])
        model.history_ = History.from_json(config["history"])
        model.columns_ = Columns.from_json(config["columns"])
        model.single_output_ = config["single_output"]
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ModelFileError(
            f"{folder}: the parts of the model do not fit together ({error})"
        ) from None
    model.label_report_ = None
    model.n_features_in_ = len(scaling.x_scale)
    if config["named"]:
        model.feature_names_in_ = np.array(model.columns_.inputs, dtype=object)
    return model


def _describe(module: nn.Module) -> dict[str, Any]:
    if not isinstance(module, MLP):
        return {"type": f"{type(module).__module__}.{type(module).__qualname__}"}
    if not module.activation.known:
        raise InputError(
            f"save: the activation {module.activation.name} is a callable, which a file "
            "can't name. Use a named activation, or keep the network as a module of your own."
        )
    return {
        "type": "MLP",
        "inputs": module.inputs,
        "outputs": module.outputs,
        "hidden": [int(layer.out_features) for layer in module.layers[:-1]],  # type: ignore[arg-type]
        "activation": module.activation.name,
        "omega_0": module.omega_0,
    }


def _build(
    config: dict[str, Any], module: nn.Module | None, folder: str | os.PathLike[str]
) -> nn.Module:
    network, dtype = dict(config["network"]), getattr(torch, config["dtype"])
    kind = network.pop("type")
    if kind == "MLP":
        return MLP(**network, dtype=dtype)
    if module is None:
        raise ModelFileError(
            f"{folder}: the model was fitted with {kind}; pass one: load(folder, module={kind}(…))"
        )
    return copy.deepcopy(module).to(dtype=dtype)


def _parameters(config: dict[str, Any]) -> dict[str, Any]:
    stored = dict(config["parameters"])
    stored["hidden"] = tuple(stored["hidden"])
    if config["network"]["type"] == "MLP":
        stored["activation"] = as_activation(config["network"]["activation"]).name
    return {**stored, "dtype": config["dtype"]}
