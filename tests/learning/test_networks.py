"""The explicit twin pass of the MLP: against autograd, row by row, for every activation."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from tests.learning.problems import PIECEWISE_LINEAR, SMOOTH, as_sequential, draw, mlp
from tests.references import assert_close, hessian_by_loop, jacobian_by_loop
from torch import nn

from pullback.errors import InputError, PiecewiseLinearWarning, ShapeError
from pullback.learning.networks import MLP, Twin

X, V = draw(4, 3, seed=1), draw(4, 3, seed=2)
CASES = [
    {"activation": name, "omega_0": omega, "hidden": (5,) * depth, "outputs": outputs}
    for name, omega, depth, outputs in itertools.product(SMOOTH, (1, 3), (0, 1, 2, 4), (1, 3))
]


def hessians_by_loop(net, x):
    """[N, K, D, D]."""
    return torch.stack(
        [hessian_by_loop(lambda z, k=k: net(z)[:, k], x) for k in range(net.outputs)], 1
    )


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PiecewiseLinearWarning)
        yield


class TestTwinPass:
    @pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c.values())))
    def test_equals_autograd_of_each_row(self, case):
        net = mlp(**case)
        reference = as_sequential(net)
        y, jac = net.value_and_jacobian(X)

        assert_close(y, reference(X), tolerance=1e-12)
        assert_close(net(X), y, tolerance=1e-15)
        assert_close(jac, jacobian_by_loop(reference, X), tolerance=1e-12)

    @pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c.values())))
    def test_second_derivative_equals_autograd_of_each_row(self, case):
        net = mlp(**case)
        y, jac, hvp = net.value_jacobian_and_hvp(X, V)

        expected = torch.einsum("nkde,ne->nkd", hessians_by_loop(net, X), V)
        assert_close(hvp, expected, tolerance=1e-12)
        for again, first in zip((y, jac), net.value_and_jacobian(X), strict=True):
            assert_close(again, first, tolerance=1e-14)

    @pytest.mark.usefixtures("quiet")
    @pytest.mark.parametrize("name", PIECEWISE_LINEAR)
    def test_piecewise_linear_ones_too(self, name):
        net = mlp(activation=name, outputs=2, omega_0=3)

        assert_close(net.value_and_jacobian(X)[1], jacobian_by_loop(as_sequential(net), X))
        assert not net.value_jacobian_and_hvp(X, V)[2].any()

    @pytest.mark.parametrize("activation", [torch.tanh, nn.Softplus(beta=2.0), nn.Mish()])
    @pytest.mark.parametrize("omega_0", [1, 3])
    def test_callables_take_their_derivative_from_autograd(self, activation, omega_0):
        net = mlp(activation=activation, outputs=2, omega_0=omega_0)

        assert_close(net.value_and_jacobian(X)[1], jacobian_by_loop(as_sequential(net), X))
        expected = torch.einsum("nkde,ne->nkd", hessians_by_loop(net, X), V)
        assert_close(net.value_jacobian_and_hvp(X, V)[2], expected)

    def test_one_direction_for_all_rows(self):
        net = mlp()
        one, each = (net.value_jacobian_and_hvp(X, v)[2] for v in (V[0], V[0].expand(4, 3)))

        assert torch.equal(one, each)

    def test_no_rows(self):
        y, jac, hvp = mlp(outputs=2).value_jacobian_and_hvp(X[:0], V[:0])

        assert (y.shape, jac.shape, hvp.shape) == ((0, 2), (0, 2, 3), (0, 2, 3))


def test_the_comparison_would_see_a_wrong_pass():
    net = mlp(outputs=3)
    jac = net.value_and_jacobian(X)[1]
    expected = jacobian_by_loop(as_sequential(net), X)
    square = mlp(outputs=3, hidden=(5,), omega_0=3)
    forgotten = square.value_and_jacobian(X)[1] / 3.0  # one omega_0 left out on the way back

    for wrong, right in (
        (1.001 * jac, expected),
        (jac.transpose(1, 2), expected),
        (jac.roll(1, 0), expected),
        (forgotten, jacobian_by_loop(as_sequential(square), X)),
    ):
        with pytest.raises(AssertionError, match="off by"):
            assert_close(wrong, right, tolerance=1e-12)


class TestConstruction:
    def test_a_generator_alone_decides_the_weights(self):
        state = torch.get_rng_state()
        first, second = (MLP(3, generator=torch.Generator().manual_seed(5)) for _ in range(2))

        assert all(map(torch.equal, first.parameters(), second.parameters()))
        assert torch.equal(torch.get_rng_state(), state)

    def test_a_seed_gives_the_same_weights_in_both_dtypes(self):
        nets = [
            MLP(3, generator=torch.Generator().manual_seed(5), dtype=dtype)
            for dtype in (torch.float32, torch.float64)
        ]
        for single, double in zip(*(net.parameters() for net in nets), strict=True):
            assert torch.equal(single, double.float())

    def test_initial_spread_keeps_activations_of_one_size(self):
        net = MLP(400, hidden=(300,), generator=torch.Generator().manual_seed(0))
        weight = net.layers[0].weight.detach()

        # 120,000 draws: the standard error of the deviation is 0.2 %.
        assert weight.std() * 20.0 == pytest.approx(1.0, rel=0.01)
        assert weight.abs().max() * 20.0 <= 2.0 / 0.8796
        assert not net.layers[0].bias.any()

    def test_sine_networks_start_as_siren_does(self):
        net = MLP(10, hidden=(50, 50), activation="sin", omega_0=30.0)

        assert net.layers[0].weight.abs().max() <= 0.1
        assert net.layers[1].weight.abs().max() <= (6 / 50) ** 0.5 / 30.0

    def test_weights_of_an_activation_are_the_networks_own(self):
        with pytest.warns(PiecewiseLinearWarning):
            net = MLP(3, activation=nn.PReLU(), hidden=(4,), dtype=torch.float64)

        assert "activation_module.weight" in dict(net.named_parameters())
        assert net.value_and_jacobian(X)[1].dtype == torch.float64

    def test_widths_may_be_numpys_integers(self):
        assert MLP(np.int64(3), 1, hidden=np.array([4, 4])).layers[0].out_features == 4

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"inputs": 0}, "positive whole widths, got"),
            ({"inputs": 3, "hidden": (4.0,)}, "positive whole widths"),
            ({"inputs": 3, "outputs": -1}, "positive whole widths"),
            ({"inputs": 3, "omega_0": 0.0}, "omega_0 > 0, got 0.0"),
            ({"inputs": 3, "omega_0": float("nan")}, "omega_0 > 0"),
        ],
    )
    def test_impossible_networks_are_refused(self, arguments, words):
        with pytest.raises(InputError, match=words):
            MLP(**arguments)

    @pytest.mark.parametrize("x", [draw(3), draw(4, 2), draw(4, 3, 1)])
    def test_other_shapes_are_refused(self, x):
        with pytest.raises(ShapeError, match=r"expected x of shape \[N, 3\], got"):
            mlp()(x)

    @pytest.mark.parametrize("name", ["relu", "leaky_relu"])
    def test_piecewise_linear_warns_and_says_why(self, name):
        with pytest.warns(PiecewiseLinearWarning) as caught:
            MLP(3, activation=name)

        words = str(caught[0].message)
        assert f"activation {name} is piecewise linear: its second derivative is zero" in words
        assert "no gradient to the hidden biases" in words
        assert "Use softplus, tanh" in words

    def test_a_linear_model_does_not_warn(self):
        assert MLP(3, hidden=(), activation="relu").value_and_jacobian(X.float())[1].shape == (
            4,
            1,
            3,
        )


class TestLeavesTorch:
    def test_exports_with_any_number_of_rows(self):
        twin = Twin(mlp(activation="softplus", outputs=2))
        rows = torch.export.Dim("rows")
        program = torch.export.export(twin, (draw(6, 3),), dynamic_shapes=({0: rows},))

        for got, expected in zip(program.module()(X), twin(X), strict=True):
            assert_close(got, expected)

    def test_compiles_without_a_graph_break_and_trains(self):
        torch._dynamo.reset()
        twin = Twin(mlp(activation="tanh"))
        compiled = torch.compile(twin, backend="eager", fullgraph=True)
        gradients = []
        for run in (twin, compiled):
            twin.zero_grad()
            y, jac = run(X)
            (y.square().sum() + jac.square().sum()).backward()
            gradients.append([p.grad for p in twin.parameters()])

        for got, expected in zip(*gradients, strict=True):
            assert_close(got, expected)
