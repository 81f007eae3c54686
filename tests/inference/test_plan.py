"""Which rows are recomputed together."""

import pytest
import torch
from tests.inference.cases import CASES

import pullback.inference as pb
from pullback.errors import CoupledRowsError
from pullback.inference.plan import plan


def tasks_of(run, rows, owners=None):
    rows = torch.as_tensor(rows)
    owners = torch.zeros_like(rows) if owners is None else torch.as_tensor(owners)
    return plan(run._replay.recording, rows, owners, run._rules)


def sizes(tasks):
    return [len(task.rows) for task in tasks]


@pytest.fixture
def run():
    return pb.infer(*CASES[0].build(40), batch_size=16)


def test_parts_are_even(run):
    assert sizes(tasks_of(run, torch.randperm(40)[:33])) == [11, 11, 11]
    assert sizes(tasks_of(run, torch.randperm(40)[:17])) == [9, 8]


def test_every_position_is_served_once(run):
    rows = torch.randint(40, (57,))
    served = torch.cat([walk.positions for task in tasks_of(run, rows) for walk in task.walks])
    assert served.sort().values.tolist() == list(range(57))
    for task in tasks_of(run, rows):
        for walk in task.walks:
            assert torch.equal(task.rows[walk.slots], rows[walk.positions])


def test_no_batch_is_recomputed_in_its_old_company(run):
    for rows in (range(16), range(32), range(40), torch.arange(40).flip(0)):
        tasks = tasks_of(run, rows)
        for task in tasks:
            for batch in run._replay.recording.batches:
                assert task.rows.sort().values.tolist() != batch.rows.tolist()


@pytest.mark.parametrize("n", [2, 3, 8, 12, 16, 32])
def test_coupling_is_found_whatever_is_asked_for(n):
    x = torch.randn(n, 3, dtype=torch.float64)

    def centred(x):
        return x.square() - x.mean(0)

    run = pb.infer(centred, x, batch_size=16)
    with pytest.raises(CoupledRowsError):
        run.gradient_of(0)
    with pytest.raises(CoupledRowsError, match="infer: recomputed outputs differ"):
        pb.infer(centred, x, batch_size=16, keep=10**9)


def test_repeated_rows_of_a_random_batch_take_a_walk_each():
    run = pb.infer(lambda x: torch.nn.functional.dropout(x), torch.randn(40, 3), batch_size=16)
    (task,) = tasks_of(run, [3, 5, 3, 3])
    assert [walk.positions.tolist() for walk in task.walks] == [[0, 1], [2], [3]]
    assert task.batch is not None
    assert len(task.rows) == 16


def test_coupled_requests_are_walked_alone():
    run = pb.infer(*CASES[0].build(40), batch_size=16, coupled="batch")
    (task,) = tasks_of(run, [3, 5, 4], owners=[0, 1, 0])
    assert [walk.positions.tolist() for walk in task.walks] == [[0, 2], [1]]
