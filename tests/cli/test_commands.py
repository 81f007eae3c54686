"""What each command reads, says and writes when all is well."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import COLUMNS, exact, run, table

from pullback import __version__
from pullback.learning import DifferentialRegressor
from pullback.tables import read_table

SUFFIXES = (".parquet", ".npz", ".csv")


def test_the_installed_command():
    command = Path(sys.executable).with_name("pullback")
    shown = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("demo", "fit", "predict", "report"):
        assert f"\n  {name} " in shown


def test_heavy_libraries_are_imported_when_they_are_used():
    code = "import sys, pullback.cli, pullback.tables, pullback.reports; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert not loaded & {"matplotlib", "pyarrow", "sklearn", "pandas", "polars"}


def test_version():
    assert run("--version").stdout.startswith(f"pullback {__version__} (torch ")


@pytest.mark.parametrize("name", ["demo", "fit", "predict", "report"])
def test_every_command_explains_itself(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_fit_says_what_it_took_and_what_came(made):
    for words in ("train.parquet: 200 rows", "x     spot, vol", "y     price",
                  "dydx  dprice/dspot, dprice/dvol", "model: lbfgs", "derivative"):  # fmt: skip
        assert words in made.said


def test_model_learned_values_and_derivatives_with_names_and_units(made):
    model = DifferentialRegressor.load(made.model)
    assert model.columns_ == COLUMNS
    rows = table(100, seed=2)
    y, dydx = model.predict(rows.x, return_gradient=True)
    np.testing.assert_allclose(y, rows.y[:, 0], atol=0.01)
    np.testing.assert_allclose(dydx, rows.dydx[:, 0], atol=0.05)


def test_fit_is_repeated_bit_for_bit_by_its_seed_from_any_format(made, here):
    predictions = []
    for suffix in SUFFIXES:
        result = run(
            "fit", made.folder / f"train{suffix}", "--x", "spot,vol", "--y", "price",
            "-o", f"m{suffix}", "--hidden", "8", "--epochs", "20", "--optimizer", "adam",
            "--seed", "3", "--quiet",
        )  # fmt: skip
        assert (result.exit_code, result.output) == (0, "")
        predictions.append(DifferentialRegressor.load(f"m{suffix}").predict(table(9).x))
    np.testing.assert_array_equal(predictions[0], predictions[1])
    np.testing.assert_array_equal(predictions[0], predictions[2])


def test_fit_passes_every_hyper_parameter_on(made, here, monkeypatch):
    seen = {}

    def fit(self, X, y, dydx=None, *, validation_data=None, columns=None):
        seen.update(self.get_params(), X=X, y=y, dydx=dydx, held=validation_data, columns=columns)
        raise KeyboardInterrupt

    monkeypatch.setattr(DifferentialRegressor, "fit", fit)
    result = run(
        "fit", made.folder / "train.csv", "--x", "spot", "--x", "vol", "--y", "price",
        "--unit", "vol=1/a", "--no-derivatives", "--validation", made.folder / "test.csv",
        "--hidden", "5, 6", "--activation", "sin", "--optimizer", "adam", "--epochs", 7,
        "--batch-size", 8, "--learning-rate", 0.5, "--weight-decay", 0.25,
        "--derivative-weight", 2, "--early-stopping", "--validation-fraction", 0.2,
        "--check-labels", "off", "--seed", 11, "--dtype", "float64", "--device", "cpu",
        "--checkpoint", "state", "-o", "m",
    )  # fmt: skip
    assert result.exit_code == 130
    assert "interrupted; nothing was written" in result.stderr
    assert not Path("m").exists()
    expected = {
        "hidden": (5, 6), "activation": "sin", "optimizer": "adam", "epochs": 7, "batch_size": 8,
        "learning_rate": 0.5, "weight_decay": 0.25, "derivative_weight": 2.0,
        "early_stopping": True, "validation_fraction": 0.2, "check_labels": False,
        "random_state": 11, "dtype": "float64", "device": "cpu", "checkpoint": Path("state"),
        "dydx": None,
    }  # fmt: skip
    assert {key: seen[key] for key in expected} == expected
    assert seen["columns"].units == {"vol": "1/a"}
    assert seen["X"].shape == (200, 2)
    assert seen["y"].shape == (200,)
    assert [part.shape for part in seen["held"]] == [(100, 2), (100,)]


def test_fit_on_several_outputs_and_holes(here):
    x = np.random.default_rng(0).normal(size=(60, 2))
    dydx = np.full((60, 2, 2), np.nan)
    dydx[:, 0, 0] = 1.0
    np.savez("rows.npz", x=x, y=np.stack([x[:, 0], x[:, 1]], axis=1), dydx=dydx)
    result = run("fit", "rows.npz", "-o", "m", "--hidden", "4", "--epochs", "5", "--seed", "0")
    assert result.exit_code == 0, result.output
    assert "dydx  dy0/dx0\n" in result.stdout
    assert run("predict", "m", "rows.npz", "-o", "out.npz").exit_code == 0
    with np.load("out.npz") as out:
        assert out["y"].shape == (60, 2)
        assert out["dydx"].shape == (60, 2, 2)


def test_interrupted_fit_keeps_what_it_has_and_says_so(made, here, monkeypatch):
    fit = DifferentialRegressor.fit

    def interrupted(self, *args, **kwargs):
        fit(self, *args, **kwargs)
        self.history_.interrupted = True
        return self

    monkeypatch.setattr(DifferentialRegressor, "fit", interrupted)
    result = run("fit", made.folder / "train.parquet", "-o", "m", "--hidden", "4", "--epochs", 3)
    assert result.exit_code == 130
    assert "interrupted; the weights so far are in m" in result.stderr
    assert DifferentialRegressor.load("m").columns_ == COLUMNS


def test_validation_is_reported(made, here):
    result = run(
        "fit", made.folder / "train.parquet", "--validation", made.folder / "test.csv", "-o", "m",
        "--hidden", "4", "--epochs", 3,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "held out: 100 rows" in result.stdout
    assert "dprice/dspot" in result.stdout


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("source", SUFFIXES)
def test_predictions_are_those_of_the_model(made, here, source, suffix):
    result = run("predict", made.model, made.folder / f"test{source}", "-o", f"out{suffix}")
    assert result.exit_code == 0, result.output
    rows = read_table(f"out{suffix}", x=["spot,vol"], y=["price"])
    model = DifferentialRegressor.load(made.model)
    y, dydx = model.predict(rows.x, return_gradient=True)
    np.testing.assert_array_equal(rows.x, table(100, seed=1, reach=1.3).x)
    np.testing.assert_array_equal(rows.y[:, 0], y)
    np.testing.assert_array_equal(rows.dydx[:, 0], dydx)
    flags = read_table(f"out{suffix}", x=["spot"], y=["outside_domain"]).y[:, 0]
    outside = model.domain_.outside(rows.x)
    np.testing.assert_array_equal(flags, outside)
    assert 0 < outside.sum() < 100
    assert f"100 rows predicted, {outside.sum()} outside" in result.stdout


def test_predictions_carry_units_and_can_leave_gradients_out(made, here):
    run("predict", made.model, made.folder / "test.csv", "-o", "out.parquet", "--no-gradient")
    rows = read_table("out.parquet")
    assert rows.columns == COLUMNS
    assert rows.dydx is None


def test_predictions_do_not_depend_on_the_chunk(made, here, monkeypatch):
    monkeypatch.setattr("pullback.cli.predict.CHUNK_ROWS", 7)
    run("predict", made.model, made.folder / "test.csv", "-o", "small.csv")
    monkeypatch.setattr("pullback.cli.predict.CHUNK_ROWS", 1000)
    run("predict", made.model, made.folder / "test.csv", "-o", "large.csv")
    small, large = (np.genfromtxt(name, delimiter=",", skip_header=1) for name in
                    ("small.csv", "large.csv"))  # fmt: skip
    np.testing.assert_allclose(small, large, rtol=1e-9, atol=1e-12)


def test_inputs_under_other_names(made, here):
    Path("rows.csv").write_text("sigma,S\n0.5,0.25\n")
    assert run("predict", made.model, "rows.csv", "--x", "S,sigma", "-o", "out.csv").exit_code == 0
    y = read_table("out.csv", x=["spot", "vol"], y=["price"]).y
    np.testing.assert_allclose(y, exact(np.array([[0.25, 0.5]]))[0], atol=0.01)


def test_report_shows_tells_and_records(made, here):
    result = run(
        "report", made.model, made.folder / "test.npz", "-o", "r.html", "--json", "m.json",
        "--title", "Mine",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    page = Path("r.html").read_text(encoding="utf-8")
    assert "<title>Mine</title>" in page
    assert "price [USD]" in page
    (record,) = json.loads(Path("m.json").read_text())
    assert record["metrics"]["values"][0]["r2"] > 0.999
    assert record["columns"] == COLUMNS.to_json()
    assert "outside the domain" in result.stdout
    assert "Report: " in result.stdout


def test_report_of_two_models(made, here):
    run(
        "fit", made.folder / "train.parquet", "--no-derivatives", "-o", "plain", "--hidden", "4",
        "--epochs", 3,
    )  # fmt: skip
    result = run(
        "report", made.model, made.folder / "test.csv", "--against", "plain", "-o", "r.html",
        "--quiet",
    )  # fmt: skip
    assert (result.exit_code, result.output) == (0, "")
    assert "Side by side" in Path("r.html").read_text(encoding="utf-8")


def test_two_models_of_one_name_are_told_apart(made, here):
    shutil.copytree(made.model, "again/model")
    result = run(
        "report", "again/model", made.folder / "test.csv", "--against", made.model,
        "-o", "r.html", "--json", "m.json", "--quiet",
    )  # fmt: skip
    assert (result.exit_code, result.output) == (0, "")
    names = [record["name"] for record in json.loads(Path("m.json").read_text())]
    assert names == ["again/model", str(made.model)]


def test_report_without_derivatives(made, here):
    result = run("report", made.model, made.folder / "test.csv", "--no-derivatives", "-o", "r.html")
    assert result.exit_code == 0, result.output
    assert "hold no derivatives" in result.stdout


def test_demo_shows_the_gain(here):
    """Small: 3 assets, 512 rows. The gain is a factor of several, so any gain is safe to ask."""
    result = run("demo", "--rows", 512, "--dim", 3, "--output", "d.html")
    assert result.exit_code == 0, result.output
    for words in ("values only", "differential", "times smaller", f"Report: {here / 'd.html'}"):
        assert words in result.stdout
    page = Path("d.html").read_text(encoding="utf-8")
    assert "basket level" in page
    assert len(page) < 2_000_000


def test_force_replaces(made, here):
    rows = made.folder / "test.csv"
    for name, args in {
        "out.csv": ("predict", made.model, rows),
        "r.html": ("report", made.model, rows, "--quiet"),
    }.items():
        Path(name).write_text("old")
        assert run(*args, "-o", name, "--force").exit_code == 0
        assert Path(name).read_text(encoding="utf-8") != "old"
    shutil.copytree(made.model, "m")
    before = Path("m/model.safetensors").read_bytes()
    args = ("fit", made.folder / "train.csv", "--x", "spot,vol", "--y", "price", "--hidden", "4")
    assert run(*args, "--epochs", 2, "-o", "m", "--force").exit_code == 0
    assert Path("m/model.safetensors").read_bytes() != before
