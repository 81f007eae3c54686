"""Small files and a small model, made once, all through the command line itself."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from pullback.cli import main
from pullback.tables import Columns, Table, write_table

COLUMNS = Columns(("spot", "vol"), ("price",), {"price": "USD", "spot": "USD"})


def exact(x):
    """y = spot² + sin(vol), with its derivatives."""
    y = x[:, :1] ** 2 + np.sin(x[:, 1:])
    return y, np.stack([2.0 * x[:, 0], np.cos(x[:, 1])], axis=1)[:, None, :]


def table(rows, seed=0, reach=1.0):
    x = np.random.default_rng(seed).uniform(-reach, reach, size=(rows, 2))
    return Table(COLUMNS, x, *exact(x))


def run(*args):
    """Run a command; an exception that is no exit is a failure of the test."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Tables in every format and a model fitted to one of them; never written to."""
    folder = tmp_path_factory.mktemp("made")
    torch.set_num_threads(1)
    for suffix in (".parquet", ".npz", ".csv"):
        write_table(folder / f"train{suffix}", table(200))
        write_table(folder / f"test{suffix}", table(100, seed=1, reach=1.3))
    model = folder / "model"
    result = run(
        "fit", folder / "train.parquet", "-o", model, "--hidden", "16,16", "--activation", "tanh",
        "--optimizer", "lbfgs", "--epochs", "200", "--seed", "0",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    said = result.stdout
    (folder / "other.csv").write_text("a,y\n1,2\n2,3\n3,5\n")
    result = run(
        "fit", folder / "other.csv", "--x", "a", "--y", "y", "-o", folder / "other", "--epochs", 1,
        "--quiet",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return SimpleNamespace(folder=folder, model=model, said=said)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, and the current one."""
    monkeypatch.chdir(tmp_path)
    return Path(tmp_path)
