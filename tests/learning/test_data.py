"""Rows with labels: shapes that belong together, rows cut together."""

import pytest
import torch
from tests.learning.problems import draw, random_data

from pullback.errors import InputError, ShapeError
from pullback.learning.data import DifferentialData

WRONG = {
    "y": (6, 1, 2),
    "dydx": (6, 3, 2),
    "directions": (3, 6),
    "dydv": (6, 3),
    "hvp": (6, 3),
    "sample_weight": (6, 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_shapes_that_do_not_belong_together(name):
    fields = {**vars(random_data()), name: torch.zeros(WRONG[name])}

    with pytest.raises(ShapeError, match=rf"DifferentialData: expected {name} of shape \(6"):
        DifferentialData(**fields)


@pytest.mark.parametrize("shape", [(6, 3), (3, 1), (1, 6, 2, 3), (5, 1, 1)])
def test_weights_that_do_not_broadcast(shape):
    with pytest.raises(ShapeError, match=r"dydx_weight broadcastable to \[N, K, D\] = \(6, 2, 3\)"):
        DifferentialData(draw(6, 3), draw(6, 2), draw(6, 2, 3), dydx_weight=torch.ones(shape))


@pytest.mark.parametrize("name", ["dydv", "hvp"])
def test_second_order_and_directional_labels_need_directions(name):
    data = random_data()

    with pytest.raises(InputError, match="need the directions"):
        DifferentialData(data.x, data.y, **{name: getattr(data, name)})


@pytest.mark.parametrize("rows", [torch.tensor([4, 0, 0]), slice(1, 3)])
@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 2, 3), (6, 1, 1), (6, 2, 3)])
def test_rows_are_cut_together(rows, shape):
    weight = draw(*shape)
    data = DifferentialData(
        **{**vars(random_data()), "sample_weight": draw(6), "dydx_weight": weight}
    )
    cut = data.take(rows)

    for name, whole in vars(data).items():
        if name != "dydx_weight":
            assert torch.equal(getattr(cut, name), whole[rows]), name
    assert torch.equal(cut.dydx_weight.expand(len(cut), 2, 3), weight.expand(6, 2, 3)[rows])


def test_map_reaches_every_tensor_that_is_there():
    changed = random_data().map(lambda tensor: tensor.float())

    assert {t.dtype for t in vars(changed).values() if t is not None} == {torch.float32}
    assert changed.sample_weight is None
    assert changed.second_order
