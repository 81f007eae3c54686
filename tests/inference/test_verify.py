"""The tolerance lies above what rounding does, and below what faults do."""

import math

import pytest
import torch
from tests.inference.cases import CASES
from torch import nn

import pullback.inference as pb
from pullback.errors import ReplayError
from pullback.inference.fingerprint import digest, row_fingerprints
from pullback.inference.recompute import Replay
from pullback.inference.setting import Setting
from pullback.inference.verify import derived_tolerance, differences, magnitudes, row_sizes


@pytest.fixture
def seen(monkeypatch):
    """The differences that comparing finds, as they are found."""
    found = []
    compare = Replay.compare

    def record(self, rows, outputs):
        off = compare(self, rows, outputs)
        found.append(float(off.max()))
        return off

    monkeypatch.setattr(Replay, "compare", record)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rounding_stays_an_order_below(case, dtype, seen):
    net, x = case.build(64, dtype)
    run = pb.infer(net, x, batch_size=64, smallest_batch=1)
    for rows in ([0], range(3), range(7), range(0, 64, 5), range(33)):
        run.gradient_of(0, rows=rows)
    assert len(seen) == 5
    assert max(seen) < run.explain().tolerance / 10


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16_rounding_stays_below(case, seen):
    net, x = case.build(64, torch.float32)
    run = pb.infer(net, x, batch_size=64, autocast=torch.bfloat16)
    for rows in ([0], range(7), range(33)):
        run.gradient_of(0, rows=rows)
    assert max(seen) < run.explain().tolerance


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_weight_off_by_one_in_a_thousand_is_found(case):
    net, x = case.build(64, torch.float32)
    run = pb.infer(net, x)
    with torch.no_grad():
        next(iter(net.parameters())).data.mul_(1.001)
    with pytest.raises(ReplayError, match=r"behind autograd's back.*\.data counts no version"):
        run.gradient_of(0)


def test_a_tolerance_of_the_callers():
    own = torch.Generator().manual_seed(0)

    def noisy(x):
        return x * (1 + 1e-3 * torch.rand((), generator=own))

    x = torch.randn(8, 3)
    with pytest.raises(ReplayError):
        pb.infer(noisy, x).gradient_of(0)
    run = pb.infer(noisy, x, tolerance=1e-2)
    assert run.gradient_of(0).any()
    assert "as asked for" in str(run.explain())


def test_a_network_unlike_itself_is_named():
    calls = []

    def growing(x):
        calls.append(1)
        return x * (1.0 if len(calls) == 1 else 2.0)

    with pytest.raises(ReplayError, match=r"attribute that forward writes.*tolerance="):
        pb.infer(growing, torch.randn(8, 3)).gradient_of(0)


def test_outputs_that_were_written_to():
    run = pb.infer(*CASES[0].build(8))
    with torch.no_grad():
        run.outputs.mul_(2)
    with pytest.raises(ReplayError, match=r"run\.outputs was written to.*detach\(\)\.clone\(\)"):
        run.gradient_of(0)


class TestTolerance:
    cpu = Setting(torch.device("cpu"), None)

    def test_its_formula(self):
        net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(9)])
        got = derived_tolerance(net, [torch.float32], self.cpu)
        assert got.allowed == pytest.approx(8 * 3 * 32 * 2.0**-24)
        assert "L=9, u_store=0, n=1024" in got.source

    def test_a_coarser_format_is_allowed_its_rounding(self):
        bf16 = derived_tolerance(None, [torch.bfloat16], self.cpu)
        assert bf16.allowed == pytest.approx(8 * 2 * (2.0**-8 + 16 * 2.0**-24))
        cast = derived_tolerance(
            None, [torch.float32], Setting(torch.device("cpu"), torch.bfloat16)
        )
        assert cast.allowed == bf16.allowed

    def test_doubles_are_held_to_double_precision(self):
        assert derived_tolerance(None, [torch.float64], self.cpu).allowed < 1e-13


class TestComparison:
    def test_the_size_of_a_row_is_its_own_or_the_median(self):
        values = torch.tensor([[1.0, -4.0], [0.0, 1e-9], [3.0, 2.0], [math.nan, 7.0]])
        assert row_sizes(magnitudes(values)).tolist() == [4.0, 3.0, 3.0, 7.0]

    def test_one_huge_row_does_not_hide_the_others(self):
        values = torch.ones(5, 1)
        values[0] = 1e30
        assert row_sizes(magnitudes(values)).tolist()[1:] == [1.0] * 4

    def test_nan_and_infinity_have_to_be_the_same(self):
        row = torch.tensor([[1.0, math.nan, math.inf]])
        size = torch.ones(1, dtype=torch.float64)
        assert differences(row, row.clone(), size).tolist() == [0.0]
        for other in ([1.0, 2.0, math.inf], [1.0, math.nan, -math.inf], [math.nan] * 3):
            assert differences(torch.tensor([other]), row, size).tolist() == [math.inf]

    def test_integers_shapes_and_dtypes_are_exact(self):
        size = torch.ones(2, dtype=torch.float64)
        old = torch.tensor([[1], [2]])
        assert differences(torch.tensor([[1], [3]]), old, size).tolist() == [0.0, math.inf]
        assert differences(torch.ones(2, 2), torch.ones(2, 1), size).tolist() == [math.inf] * 2
        assert differences(torch.ones(2, 1), torch.ones(2, 1).double(), size).isinf().all()

    def test_complex_and_empty_outputs(self):
        size = torch.ones(2, dtype=torch.float64)
        z = torch.tensor([[1 + 1j], [2 - 1j]])
        assert differences(z, z.clone(), size).tolist() == [0.0, 0.0]
        assert differences(z + 1e-3, z, size).max() == pytest.approx(1e-3, rel=1e-3)
        assert differences(torch.ones(2, 0), torch.ones(2, 0), size).tolist() == [0.0, 0.0]


class TestFingerprints:
    @pytest.mark.parametrize(
        "dtype",
        [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.complex64],
        ids=str,
    )
    def test_a_changed_or_moved_element_shows(self, dtype):
        x = torch.arange(1, 13).reshape(3, 4).to(dtype)
        before = row_fingerprints(x)
        changed = x.clone()
        changed[1, 2] += 1
        assert (row_fingerprints(changed) != before).tolist() == [False, True, False]
        assert (row_fingerprints(x.flip(1)) != before).all()
        assert torch.equal(row_fingerprints(x[[2, 0]]), before[[2, 0]])

    def test_a_mirrored_binary_image_shows(self):
        """Ones and zeros as floats hold nine bits each: a plain product would collide often."""
        images = (torch.rand(500, 64) < 0.5).float()
        same = row_fingerprints(images) == row_fingerprints(images.flip(1))
        assert not same.any()

    def test_rows_without_elements_or_axes(self):
        assert row_fingerprints(torch.zeros(3, 0)).tolist() == [0, 0, 0]
        assert len(set(row_fingerprints(torch.arange(3.0)).tolist())) == 3
        assert magnitudes(torch.zeros(3, 0)).tolist() == [0, 0, 0]

    def test_a_digest_sees_dtype_shape_and_bits(self):
        x = torch.arange(6.0)
        others = [x.double(), x.reshape(2, 3), x + 1, x.flip(0), -x]
        assert len({digest(t) for t in [x, *others]}) == 6
        assert digest(x) == digest(x.clone())
        large = torch.zeros(200_000)
        before = digest(large)
        large[150_000] = 1e-30
        assert digest(large) != before
        assert digest(torch.tensor(1.0)) != digest(torch.tensor(2.0))
