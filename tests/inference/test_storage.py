"""A run saved today and pulled back tomorrow."""

import json

import numpy as np
import pytest
import torch
from tests.inference.cases import CASES
from torch import nn

import pullback.inference as pb
from pullback.errors import FileError, ModelFileError, ReplayError

N = 20


@pytest.fixture
def saved(tmp_path):
    net, x = CASES[1].build(N)
    run = pb.infer(net, x, batch_size=8)
    run.outputs[2:9].square().sum().backward()
    run.save(tmp_path / "run")
    return net, x, run, tmp_path / "run"


def test_it_goes_on_where_it_was(saved):
    net, _, run, folder = saved
    again = pb.Inference.load(folder, net)
    assert torch.equal(again.outputs, run.outputs)
    assert torch.equal(again.input_gradients(), run.input_gradients())
    again.outputs[0].sum().backward()
    assert again.input_gradients([0]).any()
    assert torch.equal(again.pick([3], torch.sum).gradients, run.pick([3], torch.sum).gradients)
    assert again.explain().tolerance_source == run.explain().tolerance_source


def test_the_run_itself_is_untouched_and_may_be_saved_again(saved):
    net, _, run, folder = saved
    run.clear_cotangents()
    run.save(folder)
    again = pb.Inference.load(folder, net)
    assert again.outputs.grad is None
    assert sorted(path.name for path in folder.parent.iterdir()) == ["run"]


@pytest.mark.parametrize("draw", [torch.nn.functional.dropout, None], ids=["torch", "numpy"])
def test_random_batches_are_replayed_tomorrow(draw, tmp_path):
    linear = nn.Linear(5, 3).double()

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            y = self.linear(x)
            return draw(y, 0.5) if draw else y * (1 + np.random.rand())

    net = Noisy().train()
    run = pb.infer(net, torch.randn(N, 5, dtype=torch.float64), batch_size=8)
    want = run.gradient_of(0)
    run.save(tmp_path / "run")
    torch.manual_seed(99)
    np.random.seed(99)
    net.eval()
    assert torch.equal(pb.Inference.load(tmp_path / "run", net).gradient_of(0), want)
    assert not net.training


def test_modes_containers_and_arguments_are_saved(tmp_path):
    linear = nn.Linear(5, 3).double()

    def net(x, k):
        return {"y": linear(x) * k[:, None], "parts": (x,)}

    inputs = {"x": torch.randn(N, 5, dtype=torch.float64), "k": torch.arange(N)}
    run = pb.infer(net, inputs, batch_size=8, wrt="x")
    run.outputs["y"].sum().backward()
    run.save(tmp_path / "run")
    again = pb.Inference.load(tmp_path / "run", net)
    assert isinstance(again.outputs["parts"], tuple)
    assert torch.equal(again.input_gradients(), run.input_gradients())


def test_ragged_rows_are_saved(tmp_path):
    rows = [torch.randn(2 + i % 3, dtype=torch.float64) for i in range(10)]
    run = pb.infer(torch.square, rows, batch_size=4)
    run.outputs[3].sum().backward()
    run.save(tmp_path / "run")
    with pytest.raises(ModelFileError, match=r"not part of the saved run\. Hand them in"):
        pb.Inference.load(tmp_path / "run", torch.square)
    again = pb.Inference.load(tmp_path / "run", torch.square, rows)
    assert torch.equal(again.input_gradients(3)[0], 2 * rows[3])


def test_coupled_batches_and_their_statistics(tmp_path):
    net, x = CASES[1].build(N)
    run = pb.infer(net.train(), x, batch_size=8, coupled="batch")
    run.outputs[3].sum().backward()
    run.save(tmp_path / "run")
    statistics = net[1].running_mean.clone()
    net.eval()
    again = pb.Inference.load(tmp_path / "run", net)
    assert torch.equal(again.input_gradients(), run.input_gradients())
    assert torch.equal(net[1].running_mean, statistics)
    assert net[1].num_batches_tracked == 3


class TestRefusals:
    def test_other_weights(self, saved):
        net, _, _, folder = saved
        with torch.no_grad():
            net[0].weight[0] += 1e-3
        with pytest.raises(ModelFileError, match=r"weights are not those.*\(0\.weight\)"):
            pb.Inference.load(folder, net)

    def test_another_network(self, saved):
        *_, folder = saved
        with pytest.raises(ModelFileError, match=r"more\)"):
            pb.Inference.load(folder, nn.Linear(2, 2))

    def test_other_inputs(self, saved):
        net, x, _, folder = saved
        with pytest.raises(ReplayError, match="inputs of rows 0, 1, 2 and 5 more"):
            pb.Inference.load(folder, net, x + 1)
        with pytest.raises(ModelFileError, match="inputs of 20 rows, got 19"):
            pb.Inference.load(folder, net, x[1:])

    def test_something_else(self, saved, tmp_path):
        net, *_, folder = saved
        with pytest.raises(ModelFileError, match="written by Inference"):
            pb.Inference.load(tmp_path, net)
        facts = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**facts, "format": 99}))
        with pytest.raises(ModelFileError, match="another version"):
            pb.Inference.load(folder, net)
        (folder / "run.json").write_text("{")
        with pytest.raises(ModelFileError):
            pb.Inference.load(folder, net)

    def test_a_folder_that_cannot_be_made(self, saved, tmp_path):
        *_, run, _ = saved
        with pytest.raises(FileError, match="there is no folder"):
            run.save(tmp_path / "missing" / "run")

    def test_a_save_that_fails_leaves_the_old_one(self, saved, monkeypatch):
        *_, run, folder = saved
        before = (folder / "run.json").read_text()

        def fail(*_, **__):
            raise OSError("disk full")

        monkeypatch.setattr("pullback.inference.storage.json.dumps", fail)
        with pytest.raises(OSError, match="disk full"):
            run.save(folder)
        assert (folder / "run.json").read_text() == before
        assert [path.name for path in folder.parent.iterdir()] == ["run"]
