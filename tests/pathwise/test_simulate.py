"""`pullback simulate`: every market, one's own payoff, and a run that breaks off."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from pullback.cli import main
from pullback.learning import Columns
from pullback.pathwise.markets import MARKETS, BlackScholesCall
from pullback.tables import Table, read_table
from pullback.tables import shards as shards_module
from pullback.tables.shards import write_in_shards

OWN = """
import torch
from pullback.pathwise.markets import BlackScholesCall

market = BlackScholesCall(strike=0.9)
number = 3

def payoff(state, noise):
    return torch.relu(state["spot"] + 0.2 * noise.sum(1) - 1.0)

def digital(state, noise):
    return (state["spot"] + 0.2 * noise[:, 0] > 1.0).double()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["simulate", *map(str, arguments)])

    return run


@pytest.mark.parametrize("market", list(MARKETS))
def test_every_market_has_a_command(run, market):
    # Rows few, paths of the policies too: what is written is the point here.
    small = ["--set", "policy_rows=4096"] if market.startswith("bermudan") else []
    result = run(market, "--rows", 48, "-o", "rows.npz", "--check-labels", "off", *small)
    assert result.exit_code == 0, result.output
    table = read_table("rows.npz")
    assert table.columns.outputs == ("price",)
    assert len(table) == 48
    assert np.isfinite(table.dydx).all()


def test_the_rows_are_those_of_the_library(run):
    result = run(
        "black-scholes", "--vary", "vol=0.1:0.4", "--rows", 300, "--seed", 9, "-o", "a.npz"
    )
    assert result.exit_code == 0, result.output
    assert "a.npz: 300 rows" in result.output
    assert "x     spot, vol" in result.output
    from pullback.pathwise import Uniform

    labels = BlackScholesCall(vol=Uniform(0.1, 0.4)).sample(300, seed=9)
    table = read_table("a.npz")
    np.testing.assert_array_equal(table.dydx, labels.dydx.numpy())
    np.testing.assert_array_equal(table.values, labels.y.numpy())


def test_exact_answers(run):
    assert run("basket", "--dim", 3, "--rows", 40, "--exact", "-o", "a.csv").exit_code == 0
    table = read_table("a.csv", x=["spot*"], y=["price"])
    market = MARKETS["basket"](3)
    exact = market.exact_value(torch.from_numpy(table.x))
    np.testing.assert_allclose(table.values[:, 0], exact, rtol=1e-12)


def test_a_payoff_of_ones_own(run):
    Path("mine.py").write_text(OWN)
    options = ["--vary", "spot=0.5:1.5", "--noise", "2", "--rows", 64, "--unit", "y=EUR"]
    assert run("mine:payoff", *options, "-o", "a.npz").exit_code == 0
    assert read_table("a.npz").columns.unit("y") == "EUR"
    assert run("mine:market", "--rows", 64, "-o", "b.npz").exit_code == 0
    changed = run("mine:market", "--set", "strike=1.3", "--rows", 64, "-o", "c.npz")
    assert changed.exit_code == 0
    assert read_table("c.npz").values.mean() < read_table("b.npz").values.mean()
    wrong = run("mine:digital", *options, "-o", "d.npz")
    assert wrong.exit_code == 2
    assert "the derivative of y by spot is wrong" in wrong.output
    assert not Path("d.npz").exists()


MISTAKES = [
    (["nothing", "-o", "a.npz"], "expected one of black-scholes, digital"),
    (["heston", "--dim", "3", "-o", "a.npz"], "heston has no 'dim'; it has spot, variance"),
    (["heston", "--set", "kappa=1", "-o", "a.npz"], "heston has no 'kappa'"),
    (["heston", "--set", "steps", "-o", "a.npz"], "expected NAME=VALUE, got 'steps'"),
    (["heston", "--vary", "spot=wide", "-o", "a.npz"], "such as lognormal(100,0.3); got 'wide'"),
    (["heston", "--vary", "spot=2:1", "-o", "a.npz"], "expected low < high, got 2.0 and 1.0"),
    (["digital", "--set", "labels=none", "-o", "a.npz"], "to be one of raw, soft"),
    (["heston", "-o", "a.txt"], "expected a name that ends in .parquet, .npz, .csv"),
    (["mine:nothing", "-o", "a.npz"], "module 'mine' has no attribute 'nothing'"),
    (["mine:number", "-o", "a.npz"], "mine:number is no function and no market"),
    (["mine:payoff", "-o", "a.npz"], "say the shape of one path's noise with --noise"),
    (["mine:payoff", "--noise", "x", "--vary", "spot=0:1", "-o", "a.npz"], "a shape such as 12,2"),
    (["nowhere:payoff", "-o", "a.npz"], "No module named 'nowhere'"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_mistakes_are_told_in_one_line_and_leave_nothing(run, arguments, words):
    Path("mine.py").write_text(OWN)
    result = run(*arguments)
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())
    assert words in said
    left = {path.name for path in Path().iterdir()} - {"mine.py", "__pycache__"}
    assert not [name for name in left if not name.startswith(".")]


def test_a_run_that_breaks_off_goes_on(run, monkeypatch):
    whole = run("black-scholes", "--rows", 100, "--shard-rows", 100, "-o", "whole.npz")
    assert whole.exit_code == 0
    written = []
    write = shards_module.write_table

    def breaks(path, table):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write(path, table)

    arguments = ["black-scholes", "--rows", 100, "--shard-rows", 30, "-o", "a.npz"]
    monkeypatch.setattr(shards_module, "write_table", breaks)
    interrupted = run(*arguments)
    assert interrupted.exit_code == 130
    assert "60 of 100 rows are kept" in interrupted.output
    assert not Path("a.npz").exists()

    monkeypatch.setattr(shards_module, "write_table", write)
    result = run(*arguments)

    assert "a.npz: 100 rows (60 from an earlier run)" in result.output
    np.testing.assert_array_equal(read_table("a.npz").dydx, read_table("whole.npz").dydx)
    assert not Path(".a.npz.shards").exists()


def test_shards_of_other_rows_are_not_used(tmp_path):
    def table(value):
        def make(rows):
            x = np.full((len(rows), 1), float(value))
            return Table(Columns(("x",), ("y",)), x, x)

        return make

    def breaks(rows):
        raise KeyboardInterrupt

    def first_only(rows):
        return table(1)(rows) if rows.start == 0 else breaks(rows)

    path = tmp_path / "rows.npz"
    for seed, found in ((0, 2), (1, 0)):
        with pytest.raises(KeyboardInterrupt):
            write_in_shards(path, 4, first_only, shard_rows=2, made_from={"seed": 0})
        resumed = write_in_shards(path, 4, table(2), shard_rows=2, made_from={"seed": seed})
        assert resumed == found
        expected = [1, 1, 2, 2] if found else [2, 2, 2, 2]
        np.testing.assert_array_equal(read_table(path).x[:, 0], expected)


def test_a_file_that_exists_is_kept(run):
    Path("a.npz").write_text("mine")
    result = run("black-scholes", "--rows", 10, "-o", "a.npz")
    assert result.exit_code == 2
    assert "exists; pass --force to replace it" in result.output
    assert Path("a.npz").read_text() == "mine"
