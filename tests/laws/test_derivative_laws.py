"""Laws that derivatives obey, whatever the function."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import CASES, SCALAR, TWICE, mlp
from tests.references import assert_close, call
from torch.autograd import gradcheck, gradgradcheck

from pullback.derivatives import (
    gradient_by_differences,
    value_and_directional,
    value_and_gradient,
    value_and_jacobian,
    value_and_pullback,
    value_gradient_and_hvp,
)

BARE = [case for case in CASES if case.keys == (None,)]
SMOOTH = [case for case in BARE if case.smooth]
WEIGHTED = [case for case in SCALAR if case.smooth and case.parameters()]
laws = settings(max_examples=20, deadline=None, derandomize=True)

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**31)


def drawn(seed, rows, inputs, outputs):
    torch.manual_seed(seed)
    return mlp(inputs, outputs).double(), torch.randn(rows, inputs).double()


@pytest.mark.parametrize("case", BARE, ids=str)
def test_permuted_rows_permute_the_results(case):
    f, x = case.make(rows=7)
    order = torch.randperm(7)
    y, jac = value_and_jacobian(f, x)
    permuted_y, permuted_jac = value_and_jacobian(f, x[order])
    assert_close(permuted_y, y[order])
    assert_close(permuted_jac, jac[order])


@pytest.mark.parametrize("case", BARE, ids=str)
def test_a_row_has_the_same_derivative_alone_and_in_any_company(case):
    f, x = case.make(rows=7)
    _, jac = value_and_jacobian(f, x)
    assert_close(value_and_jacobian(f, x[2:3])[1], jac[2:3])
    assert_close(value_and_jacobian(f, torch.cat([x, x]))[1], torch.cat([jac, jac]))


@laws
@given(seed=seeds, rows=sizes, inputs=sizes, outputs=sizes, chunk=st.integers(1, 8))
def test_the_chunk_changes_nothing(seed, rows, inputs, outputs, chunk):
    f, x = drawn(seed, rows, inputs, outputs)
    expected = value_and_jacobian(f, x, chunk_size=1)[1]
    assert_close(value_and_jacobian(f, x, chunk_size=chunk)[1], expected)


@laws
@given(seed=seeds, rows=sizes, inputs=sizes, outputs=sizes)
def test_along_and_back_are_adjoint(seed, rows, inputs, outputs):
    f, x = drawn(seed, rows, inputs, outputs)
    v, u = torch.randn_like(x), torch.randn(rows, outputs).double()
    along = value_and_directional(f, x, v)[1]
    back = value_and_pullback(f, x, u)[1]
    # <Jv, u> = <v, Jᵀu> for each row.
    assert_close((along * u).sum(1), (v * back).sum(1), tolerance=1e-10)


@pytest.mark.parametrize("case", BARE, ids=str)
def test_along_and_back_are_adjoint_in_every_case(case):
    f, x = case.make()
    y, along = value_and_directional(f, x, v := torch.randn_like(x))
    u = torch.randn_like(y)
    back = value_and_pullback(f, x, u)[1]
    assert_close((along * u).sum(), (v * back).sum(), tolerance=1e-10)


@laws
@given(seed=seeds, rows=sizes, inputs=sizes, a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_directional_and_hvp_are_linear_in_the_direction(seed, rows, inputs, a, b):
    f, x = drawn(seed, rows, inputs, 1)
    v, w = torch.randn(2, rows, inputs).double()
    for product in (value_and_directional, value_gradient_and_hvp):
        mixed = product(f, x, a * v + b * w)[-1]
        parts = a * product(f, x, v)[-1] + b * product(f, x, w)[-1]
        # The two parts may cancel, so the scale is that of the parts before they are added.
        assert (mixed - parts).abs().max() <= 1e-12 * (1 + mixed.abs().max())


@laws
@given(seed=seeds, rows=sizes, inputs=sizes)
def test_the_hessian_is_symmetric(seed, rows, inputs):
    f, x = drawn(seed, rows, inputs, 1)
    v, w = torch.randn(2, rows, inputs).double()
    hv, hw = (value_gradient_and_hvp(f, x, d)[2] for d in (v, w))
    assert_close((w * hv).sum(1), (v * hw).sum(1), tolerance=1e-10)


@laws
@given(seed=seeds, rows=sizes, inputs=sizes, outputs=sizes)
def test_the_jacobian_agrees_with_differences(seed, rows, inputs, outputs):
    f, x = drawn(seed, rows, inputs, outputs)
    # See NOTE [The step] in derivatives/finite.py: 4e-11 of the scale of f, with room.
    assert_close(
        value_and_jacobian(f, x)[1].detach(), gradient_by_differences(f, x), tolerance=1e-7
    )


@pytest.mark.parametrize("case", [case for case in TWICE if case.smooth], ids=str)
def test_the_hessian_agrees_with_differences_of_the_gradient(case):
    f, x = case.make(rows=3)
    v = torch.randn_like(x)
    along = gradient_by_differences(lambda x: value_and_gradient(f, x, check_rows=False)[1], x)
    expected = torch.einsum("nde,ne->nd", along.reshape(3, v[0].numel(), -1), v.reshape(3, -1))
    assert_close(
        value_gradient_and_hvp(f, x, v)[2].detach().reshape(3, -1), expected, tolerance=1e-7
    )


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_results_are_differentiable_to_the_input(case):
    f, x = case.make(rows=2)
    x.requires_grad_()
    v = torch.randn_like(x)
    options = {"fast_mode": True}
    assert gradcheck(lambda x: value_and_jacobian(f, x, chunk_size=1)[1], x, **options)
    assert gradcheck(lambda x: value_and_jacobian(f, x, chunk_size=3)[1], x, **options)
    # Second order: what is differentiated here holds second derivatives already.
    assert gradcheck(lambda x: value_and_directional(f, x, v)[1], x, **options)
    one = lambda x: f(x).sin().reshape(2, -1).sum(1)  # noqa: E731
    assert gradcheck(lambda x: value_gradient_and_hvp(one, x, v)[2], x, **options)


@pytest.mark.parametrize("case", WEIGHTED, ids=str)
def test_results_are_differentiable_to_the_weights(case):
    f, x = case.make(rows=2)
    # gradcheck moves the weights in place, so f sees each of its steps.
    weights = list(f.parameters())
    options = {"fast_mode": True, "check_undefined_grad": False}
    for key in case.keys:
        assert gradcheck(lambda *_, k=key: value_and_gradient(f, x, wrt=k)[1], weights, **options)
    if case in TWICE:
        v = torch.randn_like(x)
        assert gradcheck(lambda *_: value_gradient_and_hvp(f, x, v)[2], weights, **options)


def test_results_are_twice_differentiable():
    f, x = drawn(0, 2, 3, 1)
    x.requires_grad_()
    v = torch.randn_like(x).requires_grad_()
    u = torch.randn(2, 1).double().requires_grad_()
    assert gradgradcheck(lambda x: value_and_gradient(f, x)[1], x)
    assert gradgradcheck(lambda x, v: value_and_directional(f, x, v)[1], (x, v))
    assert gradgradcheck(lambda x, u: value_and_pullback(f, x, u)[1], (x, u))
    assert gradcheck(lambda x, v: value_gradient_and_hvp(f, x, v)[2], (x, v))
    many = mlp(3, 2).double()
    assert gradgradcheck(lambda x, v: value_and_directional(many, x, v)[1], (x, v))


@laws
@given(seed=seeds, rows=sizes, inputs=sizes, scale=st.floats(0.01, 100))
def test_units_of_the_input_divide_the_derivative(seed, rows, inputs, scale):
    f, x = drawn(seed, rows, inputs, 1)
    _, dydx = value_and_gradient(f, x)
    _, rescaled = value_and_gradient(lambda z: f(z * scale), x / scale)
    assert_close(rescaled, dydx * scale, tolerance=1e-10)


@laws
@given(seed=seeds, rows=sizes, inputs=sizes)
def test_copies_of_rows_do_not_dilute_them(seed, rows, inputs):
    f, x = drawn(seed, rows, inputs, 1)
    _, dydx = value_and_gradient(f, x)
    assert_close(value_and_gradient(f, x.repeat(3, 1))[1], dydx.repeat(3, 1))


@pytest.mark.parametrize("case", BARE, ids=str)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_change_nothing(case, mode):
    f, x = case.make()
    y, jac = value_and_jacobian(f, x)
    with mode():
        quiet_y, quiet_jac = value_and_jacobian(f, x.clone())
    assert_close(quiet_y, y)
    assert_close(quiet_jac, jac)
    assert_close(y, call(f, x))
    assert not quiet_y.requires_grad
    assert not quiet_jac.requires_grad
