"""State that is switched is given back, also after an exception, also when nested."""

import random

import pytest
import torch
from torch import nn

from pullback._state import devices_of, kept_buffers, kept_rng, module_mode, thread_count


class Stop(Exception):
    pass


def raising(context, *inside):
    with context:
        for act in inside:
            act()
        raise Stop


@pytest.fixture
def net():
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(), nn.Sequential(nn.Dropout()))
    module[1].eval()
    return module


class TestRandomStream:
    def test_given_back(self):
        before = torch.get_rng_state()
        with kept_rng():
            inside = torch.rand(3)
        with kept_rng():
            assert torch.equal(torch.rand(3), inside)

        assert torch.equal(torch.get_rng_state(), before)

    def test_after_an_exception_and_when_seeded_inside(self):
        before = torch.get_rng_state()
        with pytest.raises(Stop):
            raising(kept_rng(torch.device("cpu")), lambda: torch.manual_seed(99))

        assert torch.equal(torch.get_rng_state(), before)

    def test_pythons_own_is_not_touched(self):
        before = random.getstate()
        with kept_rng():
            torch.rand(1)

        assert random.getstate() == before


class TestBuffers:
    def test_running_statistics_are_given_back(self, net):
        with pytest.raises(Stop):
            raising(kept_buffers(net), lambda: net(torch.randn(8, 2)))

        assert not net[0].running_mean.any()
        assert int(net[0].num_batches_tracked) == 0

    def test_an_unchanged_buffer_is_not_written_to(self, net):
        """Its version counter is what a graph that saved it looks at."""
        version = net[0].running_mean._version
        with kept_buffers(net):
            net.eval()(torch.randn(8, 2))

        assert net[0].running_mean._version == version

    def test_a_function_has_none(self):
        with kept_buffers(torch.sin):
            pass


class TestModes:
    @pytest.mark.parametrize("training", [True, False])
    def test_each_submodule_gets_its_own_back(self, net, training):
        before = [part.training for part in net.modules()]
        seen = []
        with pytest.raises(Stop):
            raising(
                module_mode(net, training=training),
                lambda: seen.extend(part.training for part in net.modules()),
            )

        assert set(seen) == {training}
        assert [part.training for part in net.modules()] == before

    def test_nested(self, net):
        with module_mode(net, training=True):
            with module_mode(net, training=False):
                assert not net.training
            assert net.training
            assert net[1].training
        assert not net[1].training


class TestThreads:
    def test_given_back_after_an_exception(self):
        torch.set_num_threads(2)
        seen = []
        with pytest.raises(Stop):
            raising(thread_count(1), lambda: seen.append(torch.get_num_threads()))

        assert seen == [1]
        assert torch.get_num_threads() == 2

    def test_none_changes_nothing(self):
        torch.set_num_threads(2)
        with thread_count(None):
            assert torch.get_num_threads() == 2


def test_devices_once_each_in_order():
    cpu, meta = torch.zeros(1), torch.zeros(1, device="meta")

    assert devices_of(meta, cpu, meta, cpu) == (torch.device("meta"), torch.device("cpu"))
    assert devices_of() == ()
