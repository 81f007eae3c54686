"""Everything that rows can be read from again gives the same gradients as a tensor does."""

import numpy as np
import pytest
import torch
from tests.inference.cases import CASES
from tests.inference.references import assert_rows_close
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import pullback.inference as pb
from pullback.errors import InputError, ReplayError, ShapeError

N = 21


class Pairs(Dataset):
    """Images with labels, as torchvision has them."""

    def __init__(self, x, draw=lambda: 0.0):
        self.x, self.draw = x, draw

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + self.draw(), i % 3


@pytest.fixture
def net_and_x():
    return CASES[0].build(N)


def wanted(net, x):
    return pb.infer(net, x).gradient_of(1)


def first(pair):
    return pair[0]


def sources(x, tmp_path):
    array = x.numpy()
    mapped = np.memmap(tmp_path / "x.bin", dtype=array.dtype, mode="w+", shape=array.shape)
    mapped[:] = array
    mapped.flush()
    read_only = np.memmap(tmp_path / "x.bin", dtype=array.dtype, mode="r", shape=array.shape)
    return {
        "numpy": array,
        "memmap": read_only,
        "list": list(x),
        "list of arrays": list(array),
        "dataset": TensorDataset(x),
        "loader": DataLoader(TensorDataset(x), batch_size=4),
        "loader that drops": DataLoader(list(x), batch_size=5, drop_last=True),
        "loader in reverse": DataLoader(list(x), batch_size=4, sampler=range(N - 1, -1, -1)),
        "loader with workers": DataLoader(list(x), batch_size=4, num_workers=1),
    }


NAMES = [
    "numpy",
    "memmap",
    "list",
    "list of arrays",
    "dataset",
    "loader",
    "loader that drops",
    "loader in reverse",
    "loader with workers",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_same_gradients_from_each(name, net_and_x, tmp_path):
    net, x = net_and_x
    want = wanted(net, x)
    if name == "loader in reverse":
        want = want.flip(0)
    run = pb.infer(net, sources(x, tmp_path)[name])
    assert len(run) == (20 if "drops" in name else N)
    rows = torch.tensor([3, 17, 0])
    assert_rows_close(run.gradient_of(1, rows), want[rows], 1e-12)


@pytest.mark.parametrize("make", [Pairs, lambda x: DataLoader(Pairs(x), batch_size=4)])
def test_a_label_is_left_out_by_unpack(make, net_and_x):
    net, x = net_and_x
    # An item's label is an int; a batch of them a tensor, and the network's own error comes first.
    with pytest.raises((InputError, TypeError), match=r"unpack=lambda item: item\[0\]|positional"):
        pb.infer(net, make(x))
    assert_rows_close(pb.infer(net, make(x), unpack=first).gradient_of(1), wanted(net, x), 1e-12)


def test_several_inputs_by_position_and_by_name(net_and_x):
    _, x = net_and_x
    pair = nn.Bilinear(5, 5, 2).double()
    a, b = x, x.flip(0).clone()
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    want = torch.autograd.grad(pair(*leaves)[:, 0].sum(), leaves)
    both = pb.infer(pair, (a, b)).gradient_of(0)
    assert isinstance(both, tuple)
    named = pb.infer(pair, {"input1": a, "input2": b}).gradient_of(0)
    one = pb.infer(pair, {"input1": a, "input2": b}, wrt="input2").gradient_of(0)
    listed = pb.infer(pair, (a, b), wrt=[1]).gradient_of(0)
    for found, expected in (
        (both[0], want[0]),
        (both[1], want[1]),
        (named["input1"], want[0]),
        (one, want[1]),
        (listed[0], want[1]),
    ):
        assert_rows_close(found, expected, 1e-12)


def test_items_and_batches_may_be_dicts(net_and_x):
    net, x = net_and_x
    items = [{"input": row} for row in x]
    for source in (items, DataLoader(items, batch_size=4)):
        found = pb.infer(net, source).gradient_of(1)
        assert_rows_close(found["input"], wanted(net, x), 1e-12)


def test_a_collate_function_that_pads_is_given_its_batch_back():
    rows = [torch.randn(2 + i % 4, dtype=torch.float64) for i in range(12)]

    def pad(items):
        return nn.utils.rnn.pad_sequence(items, batch_first=True)

    loader = DataLoader(rows, batch_size=5, collate_fn=pad)
    run = pb.infer(lambda x: x.square().sum(1, keepdim=True), loader)
    found = run.gradient_of(0)
    batches = [row for batch in loader for row in batch]
    for gradient, row in zip(found, batches, strict=True):
        assert torch.equal(gradient, 2 * row)


class TestRefusals:
    def test_a_loader_that_shuffles(self, net_and_x):
        net, x = net_and_x
        loader = DataLoader(TensorDataset(x), batch_size=4, shuffle=True)
        with pytest.raises(InputError, match="this one shuffles"):
            pb.infer(net, loader)

    def test_a_sampler_that_draws(self, net_and_x):
        net, x = net_and_x
        sampler = torch.utils.data.SubsetRandomSampler(range(N))
        with pytest.raises(InputError, match="this one shuffles"):
            pb.infer(net, DataLoader(TensorDataset(x), batch_size=4, sampler=sampler))

    @pytest.mark.parametrize(
        "draw", [lambda: torch.rand(()), np.random.rand], ids=["torch", "numpy"]
    )
    @pytest.mark.parametrize("load", [False, True], ids=["dataset", "loader"])
    def test_random_augmentation(self, draw, load, net_and_x):
        net, x = net_and_x
        items = Pairs(x, draw)
        source = DataLoader(items, batch_size=4) if load else items
        with pytest.raises(InputError, match="augmentation"):
            pb.infer(net, source, unpack=first)

    def test_augmentation_that_starts_late_is_found_too(self, net_and_x):
        net, x = net_and_x

        class Late(Pairs):
            def __getitem__(self, i):
                return self.x[i] + (torch.rand(()) if i > 9 else 0), 0

        with pytest.raises(InputError, match=r"reading row \d+ again.*draws random numbers"):
            pb.infer(net, Late(x), unpack=first, batch_size=4)

    def test_augmentation_by_a_generator_of_its_own_is_found_on_recomputing(self, net_and_x):
        net, x = net_and_x
        own = np.random.default_rng(0)

        class Late(Pairs):
            def __getitem__(self, i):
                return self.x[i] + (own.random() if i > 9 else 0), 0

        run = pb.infer(net, Late(x), unpack=first, batch_size=4)
        assert run.gradient_of(0, rows=slice(0, 9)).any()
        with pytest.raises(ReplayError, match=r"inputs of rows 12.*random augmentation"):
            run.gradient_of(0, rows=[12])

    def test_a_stream(self, net_and_x):
        net, x = net_and_x

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(x)

        for source in (Stream(), DataLoader(Stream(), batch_size=4), iter(x)):
            with pytest.raises(InputError, match=r"map-style Dataset"):
                pb.infer(net, source)

    @pytest.mark.parametrize(
        ("inputs", "error", "words"),
        [
            ((), InputError, "empty tuple"),
            ([], InputError, "empty data set"),
            (torch.zeros(0, 3), ShapeError, "N > 0"),
            (torch.tensor(1.0), ShapeError, "got a scalar"),
            ((torch.zeros(3, 1), torch.zeros(2, 1)), ShapeError, r"inputs\[1\] \[2, 1\]"),
            ({"x": "text"}, InputError, r"inputs\['x'\] to be a tensor or a numpy array.*str"),
        ],
    )
    def test_inputs_that_are_no_rows(self, inputs, error, words):
        with pytest.raises(error, match=words):
            pb.infer(lambda *x, **k: x[0], inputs)

    def test_a_collate_function_that_changes_the_count(self, net_and_x):
        net, x = net_and_x
        loader = DataLoader(list(x), batch_size=4, collate_fn=lambda items: torch.stack(items)[:1])
        with pytest.raises(InputError, match="collating 4 items gave 1 rows"):
            pb.infer(net, loader)


def test_ragged_rows_with_ragged_outputs():
    rows = [torch.randn(2 + i % 3, dtype=torch.float64) for i in range(13)]
    run = pb.infer(lambda x: x**3, rows, batch_size=4)
    assert isinstance(run.outputs, list)
    loss = run.outputs[4].sum() + 2 * run.outputs[5].sum()
    loss.backward()
    found = run.input_gradients([5, 4, 0])
    for gradient, expected in zip(
        found, (6 * rows[5] ** 2, 3 * rows[4] ** 2, 0 * rows[0]), strict=True
    ):
        assert torch.allclose(gradient, expected)
    pick = run.pick([1, 2], lambda ys: sum(y.sum() for y in ys))
    assert torch.allclose(pick.gradients[1], 3 * rows[2] ** 2)
    pulled = run.pull([3, 1], [torch.ones_like(rows[3]), torch.ones_like(rows[1])])
    assert torch.allclose(pulled[0], 3 * rows[3] ** 2)
    with pytest.raises(InputError, match="differ in shape, so no index fits"):
        run.gradient_of(0)
    assert run.explain().shapes == 3
