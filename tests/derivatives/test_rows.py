"""The probe: what it refuses, what it lets pass, and that it leaves no trace."""

import pytest
import torch
from tests.cases import CASES, COUPLED, mlp
from tests.references import assert_close, call
from torch import nn

from pullback.derivatives import (
    check_independent_rows,
    value_and_directional,
    value_and_gradient,
    value_and_jacobian,
    value_and_pullback,
    value_gradient_and_hvp,
)
from pullback.errors import CoupledRowsError, ShapeError


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", COUPLED, ids=str)
def test_coupled_rows_are_refused(case, dtype):
    rows = 6 if case.name == "as many outputs as rows" else 8
    with pytest.raises(CoupledRowsError, match=r"check_independent_rows: .* independent rows"):
        check_independent_rows(*case.make(rows, dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [c for c in CASES if c.name != "numpy backward"], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_independent_rows_pass(case, rows, dtype):
    check_independent_rows(*case.make(rows, dtype))


@pytest.mark.parametrize("case", COUPLED[:3], ids=str)
@pytest.mark.parametrize(
    "derivative",
    [
        value_and_gradient,
        value_and_jacobian,
        lambda f, x: value_and_directional(f, x, x),
        lambda f, x: value_gradient_and_hvp(f, x, x),
        lambda f, x: value_and_pullback(f, x, call(f, x)),
    ],
    ids=["gradient", "jacobian", "directional", "hvp", "pullback"],
)
def test_every_call_probes(case, derivative):
    with pytest.raises(CoupledRowsError):
        derivative(*case.make(8))


def test_unchecked_the_result_is_that_of_the_sum():
    f, x = COUPLED[0].make(8)
    leaf = x.clone().requires_grad_()
    _, dydx = value_and_gradient(f, x, check_rows=False)
    assert_close(dydx, torch.autograd.grad(f(leaf).sum(), leaf)[0])


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), "BatchNorm1d '1'"),
        (nn.Sequential(nn.Sequential(nn.Tanh(), nn.BatchNorm1d(3))), "BatchNorm1d '0.1'"),
        (lambda x: BATCH_NORM(x) * 2, "in BatchNorm1d"),
        (lambda x: nn.functional.softmax(x, 0), "rows of x do. A derivative"),
    ],
    ids=["module", "nested", "lambda", "no layer"],
)
def test_the_layer_is_named(f, words):
    with pytest.raises(CoupledRowsError) as error:
        check_independent_rows(f, torch.randn(8, 3))
    assert words in str(error.value)
    assert "model.eval()" in str(error.value)


BATCH_NORM = nn.BatchNorm1d(3)


def test_equal_rows_do_not_hide_a_coupling():
    with pytest.raises(CoupledRowsError):
        check_independent_rows(lambda x: x - x.mean(0), torch.ones(8, 3))


@pytest.mark.parametrize("strength", [1e-3, 1e-6])
def test_a_weak_coupling_among_many_rows_is_seen(strength):
    x = torch.randn(10_000, 3, dtype=torch.float64)
    with pytest.raises(CoupledRowsError):
        check_independent_rows(lambda x: x + strength * x.mean(0), x)


def test_dropout_is_no_coupling():
    net = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Linear(50, 2)).train()
    check_independent_rows(net, torch.randn(8, 3))


def test_a_source_of_noise_of_its_own_cannot_be_judged():
    generator = torch.Generator().manual_seed(0)
    check_independent_rows(
        lambda x: x + torch.randn(x.shape, generator=generator), torch.ones(8, 3)
    )


def test_equal_infinities_and_nans_are_no_change():
    x = torch.tensor([[0.0], [1.0], [-1.0], [2.0], [0.0]])
    check_independent_rows(lambda x: torch.cat([x.log(), 1 / x], 1), x)


def test_a_nan_that_comes_from_another_row_is_a_change():
    with pytest.raises(CoupledRowsError):
        check_independent_rows(lambda x: x + 0 * x[1].log(), torch.tensor([[1.0], [-1.0], [2.0]]))


def test_a_function_that_needs_all_rows_is_probed_on_all():
    weight = torch.randn(9, 1)
    sizes = []

    def f(x, coupled):
        sizes.append(len(x))
        return x * weight + (x.mean() if coupled else 0)

    x = torch.randn(9, 3)
    check_independent_rows(lambda x: f(x, False), x)
    assert sizes == [4, 9, 9, 9]
    with pytest.raises(CoupledRowsError):
        check_independent_rows(lambda x: f(x, True), x)


def test_the_probe_sees_four_rows_of_many():
    sizes = []

    def f(x):
        sizes.append(len(x))
        return x.sum(1)

    value_and_gradient(f, torch.randn(1000, 3))
    assert sizes[-1] == 1000
    assert set(sizes[:-1]) == {4}
    sizes.clear()
    value_and_gradient(f, torch.randn(1000, 3), check_rows=False)
    assert sizes == [1000]


def test_integer_inputs_alone_are_probed_too():
    ids = torch.arange(6)
    table = nn.Embedding(6, 2)
    check_independent_rows(table, ids)
    with pytest.raises(CoupledRowsError):
        check_independent_rows(lambda ids: table(ids).cumsum(0), ids)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x)], ids=["module", "lambda"])
def test_buffers_and_random_stream_are_given_back(wrap):
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    stream = torch.get_rng_state()
    with pytest.raises(CoupledRowsError):
        check_independent_rows(wrap(net), torch.randn(8, 3, generator=torch.Generator()))
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), stream)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in net.modules())
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_a_part_of_f_may_take_gradients_itself():
    net = mlp(3, 1)

    def force(x):
        x.requires_grad_()
        return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]

    with torch.no_grad():
        _, jac = value_and_jacobian(force, torch.randn(6, 3))
    assert_close(jac, jac.mT, tolerance=1e-5)  # a Hessian is symmetric, here up to float32


def test_a_mean_over_rows_is_a_shape_error_even_before_the_probe_ends():
    with pytest.raises(ShapeError, match=r"N = 8, got a scalar.*averages"):
        check_independent_rows(lambda x: x.mean(), torch.randn(8, 3))
