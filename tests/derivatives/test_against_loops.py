"""Every fast route against its oracle, on every case."""

import pytest
import torch
from tests.cases import CASES, SCALAR, TWICE
from tests.references import (
    assert_close,
    call,
    chosen,
    gradients_by_loop,
    hessian_by_loop,
    jacobian_by_loop,
)

from pullback.derivatives import (
    gradient_by_differences,
    random_cotangents,
    value_and_directional,
    value_and_gradient,
    value_and_jacobian,
    value_and_pullback,
    value_gradient_and_hvp,
)

MANY = [(case, key) for case in CASES for key in case.keys]
ONE = [(case, key) for case in SCALAR for key in case.keys]
DTYPES = [torch.float64, torch.float32]


def named(pairs):
    return [f"{case}-{key}" for case, key in pairs]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("case", "key"), ONE, ids=named(ONE))
def test_gradient(case, key, dtype):
    f, x = case.make(dtype=dtype)
    y, dydx = value_and_gradient(f, x, wrt=key)
    assert_close(y, call(f, x).reshape(-1))
    assert_close(dydx, gradients_by_loop(f, x, key))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk_size", [None, 1, 3])
@pytest.mark.parametrize(("case", "key"), MANY, ids=named(MANY))
def test_jacobian(case, key, chunk_size, dtype):
    f, x = case.make(dtype=dtype)
    y, jac = value_and_jacobian(f, x, wrt=key, chunk_size=chunk_size)
    assert_close(y, call(f, x))
    assert jac.shape == (5, *case.outputs, *chosen(x, key).shape[1:])
    assert_close(jac, jacobian_by_loop(f, x, key))


@pytest.mark.parametrize(("case", "key"), MANY, ids=named(MANY))
def test_directional(case, key):
    f, x = case.make()
    v = torch.randn_like(chosen(x, key))
    y, dydv = value_and_directional(f, x, v, wrt=key)
    jac = jacobian_by_loop(f, x, key).reshape(5, -1, v[0].numel())
    assert_close(y, call(f, x))
    assert_close(dydv, torch.einsum("nkd,nd->nk", jac, v.reshape(5, -1)).reshape(y.shape))


@pytest.mark.parametrize(("case", "key"), MANY, ids=named(MANY))
def test_pullback(case, key):
    f, x = case.make()
    y, jac = call(f, x), jacobian_by_loop(f, x, key)
    u = torch.randn(3, *y.shape, dtype=y.dtype)
    expected = torch.einsum("vnk,nkd->nvd", u.reshape(3, 5, -1), jac.reshape(5, y[0].numel(), -1))
    expected = expected.reshape(5, 3, *chosen(x, key).shape[1:])
    for chunk_size in (None, 1, 2):
        value, pulled = value_and_pullback(f, x, u, wrt=key, chunk_size=chunk_size)
        assert_close(value, y)
        assert_close(pulled, expected)
    assert_close(value_and_pullback(f, x, u[1], wrt=key)[1], expected[:, 1])


@pytest.mark.parametrize("case", TWICE, ids=str)
def test_hvp(case):
    f, x = case.make()
    v = torch.randn_like(x)
    y, g, hv = value_gradient_and_hvp(f, x, v)
    expected = torch.einsum("nde,ne->nd", hessian_by_loop(f, x), v.reshape(5, -1))
    assert_close(y, call(f, x).reshape(-1))
    assert_close(g, gradients_by_loop(f, x))
    assert_close(hv, expected.reshape(x.shape))
    assert (expected.abs().max() > 0) == case.smooth


def test_hvp_over_several_inputs_has_the_mixed_terms():
    x = {"a": torch.randn(4, 2).double(), "b": torch.randn(4, 2).double()}
    v = {"a": torch.randn(4, 2).double(), "b": torch.randn(4, 2).double()}
    _, g, hv = value_gradient_and_hvp(lambda a, b: (a * b).sum(1) + (a**3).sum(1), x, v)
    assert_close(g["b"], x["a"])
    assert_close(hv["a"], 6 * x["a"] * v["a"] + v["b"])
    assert_close(hv["b"], v["a"])


def test_directional_over_several_inputs_is_the_sum():
    a, b, va, vb = torch.randn(4, 5, 3).double()
    _, dydv = value_and_directional(lambda a, b: a * b, (a, b), (va, vb))
    assert_close(dydv, va * b + a * vb)


def test_one_direction_for_all_rows():
    f, x = CASES[2].make()
    v = torch.tensor([1, 0, 2])
    assert_close(
        value_and_directional(f, x, v)[1],
        value_and_directional(f, x, v.double().repeat(5, 1))[1],
    )


@pytest.mark.parametrize("case", [c for c in CASES if c.keys == (None,)], ids=str)
def test_differences_agree(case):
    f, x = case.make()
    # Truncation and rounding are near eps^(2/3) = 4e-11 of the scale; 1e-7 leaves room for large
    # third derivatives, and is still far below any wrong factor.
    assert_close(gradient_by_differences(f, x), jacobian_by_loop(f, x), tolerance=1e-7)


def test_random_cotangents_are_signs():
    u = random_cotangents((50, 2, 2), 40, generator=torch.Generator().manual_seed(0))
    assert u.shape == (40, 50, 2, 2)
    assert u.dtype == torch.float32
    assert set(u.unique().tolist()) == {-1.0, 1.0}
    flat = u.reshape(-1, 4).double()
    # 2,000 signs a mean: standard error 1/sqrt(2000) = 0.022; four of them allowed.
    assert (flat.mT @ flat / len(flat) - torch.eye(4).double()).abs().max() < 4 * 0.0224


def test_projections_estimate_the_squared_error_without_bias():
    f, x = CASES[3].make()
    g, _ = CASES[3].make()
    with torch.no_grad():
        g[0][0].weight += 0.3
    error = (value_and_jacobian(f, x)[1] - value_and_jacobian(g, x)[1]).square().sum((1, 2, 3))
    u = random_cotangents((5, 2, 3), 2000, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        apart = value_and_pullback(f, x, u)[1] - value_and_pullback(g, x, u)[1]
    samples = apart.square().sum(2)
    standard_error = samples.std(1) / 2000**0.5
    assert (standard_error < 0.05 * error).all()
    assert ((samples.mean(1) - error).abs() < 4 * standard_error).all()


@pytest.mark.parametrize(
    "spoil",
    [lambda g: g * 1.001, lambda g: g.roll(1, 0), lambda g: g.mT.contiguous(), lambda g: -g],
    ids=["factor", "shifted by a row", "transposed", "sign"],
)
def test_the_checker_can_fail(spoil):
    f, x = CASES[2].make(rows=3)
    jac = jacobian_by_loop(lambda x: f(x)[:, :3], x)
    assert_close(jac, jac.clone())
    with pytest.raises(AssertionError, match="off by"):
        assert_close(spoil(jac), jac)


@pytest.mark.parametrize("spoil", [lambda g: g[:-1], lambda g: g.float()])
def test_the_checker_looks_at_shape_and_dtype(spoil):
    g = torch.ones(3, dtype=torch.float64)
    with pytest.raises(AssertionError, match=r"instead of"):
        assert_close(spoil(g), g)
