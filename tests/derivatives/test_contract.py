"""What goes in, what comes back, what is refused, and that nothing else changes."""

import numpy as np
import pytest
import torch
from tests.cases import BAD_INPUTS, CASES, NumpyBackward, mlp
from tests.references import assert_close, call, jacobian_by_loop
from torch import nn

from pullback.derivatives import (
    gradient_by_differences,
    random_cotangents,
    value_and_directional,
    value_and_gradient,
    value_and_jacobian,
    value_and_pullback,
    value_gradient_and_hvp,
)
from pullback.errors import PullbackError, UnconnectedInputError

CALLS = {
    "gradient": value_and_gradient,
    "jacobian": value_and_jacobian,
    "directional": lambda f, x, **k: value_and_directional(f, x, torch.ones_like(x), **k),
    "hvp": lambda f, x, **k: value_gradient_and_hvp(f, x, torch.ones_like(x), **k),
    "pullback": lambda f, x, **k: value_and_pullback(f, x, torch.ones(2, len(x), 1).to(x), **k),
}
EVERY_CALL = pytest.mark.parametrize("derivative", CALLS.values(), ids=CALLS.keys())


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=str)
def test_refusals(bad):
    with pytest.raises(bad.error) as caught:
        bad.call()
    assert isinstance(caught.value, PullbackError)
    for words in bad.words:
        assert words in str(caught.value)


# Containers


def product(a, b):
    return a.sum(1) * b.sum(1)


A, B = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])


@pytest.mark.parametrize(
    ("x", "wrt", "expected"),
    [
        ((A, B), None, (7.0, 3.0)),
        ((A, B), 0, 7.0),
        ((A, B), 1, 3.0),
        ((A, B), [1], (3.0,)),
        ((A, B), (1, 0), (3.0, 7.0)),
        ({"a": A, "b": B}, None, {"a": 7.0, "b": 3.0}),
        ({"b": B, "a": A}, "b", 3.0),
        ({"a": A, "b": B}, ["a"], {"a": 7.0}),
        ((A, B.long()), None, (7.0,)),
        ({"a": A.long(), "b": B}, None, {"b": 3.0}),
    ],
)
def test_containers(x, wrt, expected):
    results = [value_and_gradient(product, x, wrt=wrt)[1]]
    results.append(value_and_jacobian(product, x, wrt=wrt)[1])
    results.append(value_and_pullback(product, x, torch.ones(1), wrt=wrt)[1])
    for result in results:
        if isinstance(expected, float):
            assert_close(result, torch.full((1, 2), expected))
            continue
        assert type(result) is type(expected)
        assert len(result) == len(expected)
        keys = expected if isinstance(expected, dict) else range(len(expected))
        for key in keys:
            assert_close(result[key], torch.full((1, 2), expected[key]))


def test_the_same_tensor_twice_is_two_inputs():
    x = torch.randn(4, 2).double()
    _, (da, db) = value_and_gradient(lambda a, b: (a * b**2).sum(1), (x, x))
    assert_close(da, x**2)
    assert_close(db, 2 * x * x)


def test_an_input_that_f_also_closes_over_is_not_counted_twice():
    x = torch.randn(4, 2).double().requires_grad_()
    _, dydx = value_and_gradient(lambda z: (z * x).sum(1), x, check_rows=False)
    assert_close(dydx, x)


def test_v_is_not_normalised_and_takes_the_dtype_of_x():
    x = torch.randn(4, 2)
    y, dydv = value_and_directional(lambda x: x.sum(1), x, torch.tensor([3, 4]))
    assert_close(dydv, torch.full_like(y, 7.0))


# Empty, half, and odd inputs


@EVERY_CALL
@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_no_rows(derivative, name):
    f, x = next(case for case in CASES if case.name == name).make(rows=0)
    value, *rest = derivative(f, x)
    assert len(value) == 0
    assert all(len(r) == 0 for r in rest)


def test_no_rows_keep_their_shapes():
    f, x = CASES[3].make(rows=0)
    y, jac = value_and_jacobian(f, x)
    assert y.shape == (0, 2, 3)
    assert jac.shape == (0, 2, 3, 3)
    assert value_and_directional(f, x, x)[1].shape == (0, 2, 3)
    assert value_and_pullback(f, x, random_cotangents(y.shape, 4))[1].shape == (0, 4, 3)
    assert gradient_by_differences(f, x).shape == (0, 2, 3, 3)


def test_no_outputs_and_no_inputs():
    x = torch.randn(3, 2)
    y, jac = value_and_jacobian(lambda x: x[:, :0], x)
    assert y.shape == (3, 0)
    assert jac.shape == (3, 0, 2)
    assert value_and_directional(lambda x: x[:, :0], x, x)[1].shape == (3, 0)
    assert value_and_jacobian(lambda x: x.sum(1), x[:, :0])[1].shape == (3, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    f, x = CASES[2].make(dtype=dtype)
    exact, z = f, x
    y, jac = value_and_jacobian(f, x)
    y, dydv = value_and_directional(f, x, torch.ones_like(x))
    assert y.dtype == jac.dtype == dydv.dtype == dtype
    exact, z = f.double(), x.double()
    reference = jacobian_by_loop(exact, z)
    # Three layers: a few eps of the largest entry.
    tolerance = 8 * torch.finfo(dtype).eps
    assert_close(jac.double(), reference, tolerance=tolerance)
    assert_close(dydv.double(), reference.sum(2), tolerance=tolerance)


def test_autocast():
    f, x = CASES[2].make(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, jac = value_and_jacobian(f, x)
    assert y.dtype == torch.bfloat16
    assert jac.dtype == torch.float32
    assert_close(jac, jacobian_by_loop(f, x), tolerance=8 * torch.finfo(torch.bfloat16).eps)


def test_channels_last_and_expanded_inputs():
    f, x = next(case for case in CASES if case.name == "conv").make()
    expected = jacobian_by_loop(f, x)
    assert_close(
        value_and_jacobian(f, x.contiguous(memory_format=torch.channels_last))[1], expected
    )
    row = x[:1].expand(5, -1, -1, -1)
    assert_close(value_and_jacobian(f, row)[1], expected[:1].expand(5, -1, -1, -1, -1))


# Grad mode


@EVERY_CALL
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_change_no_figure(derivative, mode):
    f, x = CASES[0].make()
    expected = derivative(f, x)
    with mode():
        assert not torch.is_grad_enabled()
        within = derivative(f, x.clone())  # in inference mode this x is an inference tensor
        assert not torch.is_grad_enabled()
    for got, wanted in zip(within, expected, strict=True):
        assert_close(got, wanted)
        assert not got.requires_grad
        assert not got.is_inference()
        assert wanted.requires_grad
    assert not torch.is_inference_mode_enabled()


def test_an_inference_tensor_outside_inference_mode():
    f, x = CASES[0].make()
    with torch.inference_mode():
        made = x.clone()
    assert_close(value_and_gradient(f, made)[1], value_and_gradient(f, x)[1])


@EVERY_CALL
def test_x_with_a_history_under_no_grad(derivative):
    f, x = CASES[0].make()
    with torch.no_grad():
        results = derivative(f, (x.requires_grad_() * 1).requires_grad_())
    assert not any(r.requires_grad for r in results)
    assert x.grad is None


@EVERY_CALL
def test_a_pure_function_comes_back_without_a_graph(derivative):
    x = torch.randn(3, 1).double()
    assert not any(r.requires_grad for r in derivative(torch.sin, x))
    assert all(r.requires_grad for r in derivative(torch.sin, x.requires_grad_()))
    frozen = mlp(1, 1).double().requires_grad_(False)
    assert not any(r.requires_grad for r in derivative(frozen, x.detach()))
    assert all(r.requires_grad for r in derivative(lambda x: frozen(x), x))


@EVERY_CALL
def test_results_reach_the_weights_and_what_x_came_from(derivative):
    f, x = CASES[0].make()
    encoder = nn.Linear(3, 3).double()
    results = derivative(f, encoder(x))
    loss = sum(r.square().sum() for r in results[1:])
    grads = torch.autograd.grad(loss, [*f.parameters(), *encoder.parameters()], allow_unused=True)
    assert grads[-2].abs().max() > 0
    assert grads[-1].abs().max() > 0
    # The last bias moves no derivative; every other weight does.
    connected = [g is not None and bool(g.abs().max() > 0) for g in grads[:-3]]
    assert all(connected)


def test_a_once_differentiable_operator_is_not_silently_constant():
    x = torch.randn(3, 1).double().requires_grad_()
    for derivative in CALLS.values():
        if derivative is CALLS["hvp"]:
            continue  # refused at once, see BAD_INPUTS
        result = derivative(NumpyBackward.apply, x)[1]
        with pytest.raises(RuntimeError, match="once_differentiable"):
            result.sum().backward()


@pytest.mark.parametrize("outputs", [1, 2])
def test_directions_and_cotangents_made_in_inference_mode(outputs):
    f, x = mlp(3, outputs).double(), torch.randn(4, 3).double()
    with torch.inference_mode():
        v, u = torch.ones(4, 3).double(), torch.ones(2, 4, outputs).double()
    value_and_directional(f, x, v)[1].sum().backward()
    value_and_pullback(f, x, u)[1].sum().backward()
    assert f[0].weight.grad.abs().max() > 0


@EVERY_CALL
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_graph_that_f_closes_over_is_left_whole(derivative, mode):
    encoder, f = nn.Linear(1, 1).double(), mlp(3, 1).double()
    x, context = torch.randn(4, 3).double(), encoder(torch.ones(1, 1).double()).exp()
    with mode():
        derivative(lambda x: f(x) * context, x)
    context.sum().backward()
    assert encoder.weight.grad.abs().max() > 0


# Unconnected inputs


def test_zero_where_asked_for():
    x = (torch.randn(4, 2), torch.randn(4, 3))
    f = lambda a, b: torch.stack([a.sum(1), a.prod(1)], 1)  # noqa: E731
    y, (da, db) = value_and_jacobian(f, x, unconnected="zero")
    assert da.abs().max() > 0
    assert_close(db, torch.zeros(4, 2, 3))
    for chunk_size in (1, 2):
        assert_close(value_and_jacobian(f, x, unconnected="zero", chunk_size=chunk_size)[1][1], db)
    assert_close(value_and_directional(f, x, x, unconnected="zero")[1], (da * x[0][:, None]).sum(2))
    assert_close(value_and_directional(f, x, x[1], wrt=1, unconnected="zero")[1], y * 0)


@EVERY_CALL
def test_zero_for_a_detached_output(derivative):
    x = torch.randn(4, 1)
    _, *rest = derivative(lambda x: x.detach().sin(), x, unconnected="zero")
    assert all(r.abs().max() == 0 for r in rest)
    with pytest.raises(UnconnectedInputError, match="has no graph"):
        derivative(lambda x: x.detach().sin(), x)


def test_a_linear_function_has_a_zero_hessian_and_is_connected():
    x = torch.randn(4, 3)
    _, g, hv = value_gradient_and_hvp(lambda x: x.sum(1), x, x)
    assert_close(g, torch.ones(4, 3))
    assert_close(hv, torch.zeros(4, 3))


def test_a_zero_gradient_is_not_unconnected():
    _, dydx = value_and_gradient(lambda x: (x**2).sum(1), torch.zeros(3, 2))
    assert_close(dydx, torch.zeros(3, 2))


def test_a_no_grad_block_means_the_same_to_every_route():
    def f(x):
        with torch.no_grad():
            scale = x.square().sum(1, keepdim=True)
        return x * scale

    x = torch.randn(4, 3).double()
    _, jac = value_and_jacobian(f, x)
    _, dydv = value_and_directional(f, x, x)
    assert_close(dydv, torch.einsum("nkd,nd->nk", jac, x))


# Nothing of the caller's changes


def snapshot(net, x):
    return {
        "x": x.clone(),
        "version": torch.tensor(x._version),
        "requires": torch.tensor([x.requires_grad, *(p.requires_grad for p in net.parameters())]),
        "training": torch.tensor([part.training for part in net.modules()]),
        "hooks": torch.tensor(sum(len(part._forward_hooks) for part in net.modules())),
        **{f"net.{key}": value.clone() for key, value in net.state_dict().items()},
    }


@EVERY_CALL
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_nothing_of_the_callers_changes(derivative, fails, requires_grad):
    torch.manual_seed(0)
    net = nn.Sequential(nn.ELU(inplace=True), nn.BatchNorm1d(3).eval(), mlp(3, 1)).double()
    x = torch.randn(6, 3).double().requires_grad_(requires_grad)
    net[2][0].weight.requires_grad_(False)
    net[2][0].weight.grad = torch.ones(8, 3).double()
    before, stream = snapshot(net, x), torch.get_rng_state()

    def f(x):
        y = net(x)
        if fails and len(x) == 6:
            raise ValueError("inside f")
        return y

    if fails:
        with pytest.raises(ValueError, match="inside f"):
            derivative(f, x)
    else:
        derivative(f, x)
    after = snapshot(net, x)
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert torch.equal(torch.get_rng_state(), stream)
    assert x.grad is None
    assert torch.equal(net[2][0].weight.grad, torch.ones(8, 3).double())
    assert all(p.grad is None for name, p in net.named_parameters() if name != "2.0.weight")
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


def test_the_random_stream_moves_as_if_f_had_run_once():
    net = nn.Sequential(nn.Linear(3, 20), nn.Dropout(0.5), nn.Linear(20, 2))
    x = torch.randn(6, 3)
    torch.manual_seed(0)
    y, after = net(x), None
    after = torch.get_rng_state()
    for derivative in (value_and_jacobian, lambda f, x: value_and_directional(f, x, x)):
        torch.manual_seed(0)
        assert_close(derivative(net, x)[0], y)
        assert torch.equal(torch.get_rng_state(), after)


# Routes


def test_an_operator_that_cannot_be_batched_is_looped():
    case = next(case for case in CASES if case.name == "numpy backward")
    f, x = case.make()
    assert_close(value_and_jacobian(f, x, chunk_size=3)[1], torch.diag_embed(x.exp()))
    assert_close(value_and_directional(f, x, x)[1], x.exp() * x)
    # Beside an operator that can: the two-pass route would see the sine alone, and say nothing.
    mixed = lambda x: f(x) + x.sin()  # noqa: E731
    assert_close(value_and_directional(mixed, x, x)[1], (x.exp() + x.cos()) * x)


class Scaled(torch.autograd.Function):
    """Its backward fails where a gradient is to be differentiated again."""

    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad):
        return torch.from_numpy(3 * grad.numpy())


def test_a_backward_that_cannot_be_recorded_is_never_recorded_unless_asked_for():
    x = torch.randn(3, 2).double()
    with torch.no_grad():
        assert_close(value_and_directional(Scaled.apply, x, x)[1], 3 * x)
        assert_close(value_and_jacobian(Scaled.apply, x)[1].sum(2), torch.full_like(x, 3.0))
    with pytest.raises(RuntimeError, match="numpy"):
        value_and_directional(Scaled.apply, x.requires_grad_(), x)


def test_a_chunk_bounds_how_many_are_pulled_together(monkeypatch):
    seen = []
    plain = torch.autograd.grad

    def recorded(y, points, cotangents, **options):
        seen.append(cotangents.shape[0] if options["is_grads_batched"] else 1)
        return plain(y, points, cotangents, **options)

    monkeypatch.setattr(torch.autograd, "grad", recorded)
    f, x = CASES[2].make()
    for chunk_size, expected in [(1, [1] * 4), (3, [3, 1]), (4, [4]), (9, [4]), (None, [4])]:
        seen.clear()
        value_and_jacobian(f, x, chunk_size=chunk_size)
        assert seen == expected
    seen.clear()
    value_and_jacobian(f, x.repeat(5000, 1))  # many rows: the loop is faster
    assert seen == [1] * 4


# Differences


def test_differences_of_a_numpy_black_box():
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    jac = gradient_by_differences(lambda x: np.stack([x.sum((1, 2)), (x**2).sum((1, 2))], 1), x)
    assert jac.shape == (4, 2, 2, 3)
    np.testing.assert_allclose(jac[:, 0], 1.0, atol=1e-8)
    np.testing.assert_allclose(jac[:, 1], 2 * x, atol=1e-8)


def test_differences_widen_the_step_for_a_float32_function():
    x = torch.linspace(1, 3, 20)[:, None]
    rough = gradient_by_differences(lambda x: x.float().exp(), x)
    exact = x.double().exp()[..., None]
    # h = eps^(1/3) |x| in float32: truncation and rounding near eps^(2/3) = 2e-5, times |x|^2.
    assert_close(rough, exact, tolerance=5e-4)
    narrow = gradient_by_differences(lambda x: x.float().exp(), x, step=6e-6)
    assert (narrow - exact).abs().max() > 5e-4 * exact.max()


def test_differences_at_large_and_small_inputs():
    x = torch.tensor([[1e6], [1e-6], [0.0], [-1e6]]).double()
    assert_close(gradient_by_differences(lambda x: x**2, x)[..., 0], 2 * x, tolerance=1e-9)


def test_differences_leave_x_alone():
    x = torch.randn(3, 2).double()
    before = x.clone()
    gradient_by_differences(lambda x: x.mul_(2).sum(1), x)
    assert torch.equal(x, before)
    z = x.numpy().copy()
    gradient_by_differences(lambda z: np.multiply(z, 2, out=z).sum(1), z)
    np.testing.assert_array_equal(z, before.numpy())
    assert call(lambda x: x, before) is not before
