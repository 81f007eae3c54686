"""The twin pass as one operation: its backward by hand against autograd and finite differences."""

import dataclasses
import itertools

import pytest
import torch
from tests.learning.problems import PIECEWISE_LINEAR, SMOOTH, as_sequential, draw, mlp
from tests.references import assert_close, jacobian_by_loop
from torch import nn
from torch.nn.utils import parametrize, prune

from pullback.errors import ShapeError
from pullback.learning.activations import ACTIVATIONS, as_activation
from pullback.learning.networks import Twin
from pullback.learning.twin_function import _forward, _with_members, twin_pass

N, D, M = 3, 2, 2
# torch's own, at the first use of forward mode in a process.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
CASES = list(itertools.product((1.0, 2.0), ((), (3,), (3, 2)), (1, 2), ((), (M,))))


def parts(hidden=(3, 2), outputs=1, members=(), *, x_members=(), seed=0):
    """x, weights and biases, all requiring grad."""
    widths = (D, *hidden, outputs)
    shapes = [(*x_members, N, D)]
    shapes += [(*members, b, a) for a, b in itertools.pairwise(widths)]
    shapes += [(*members, b) for b in widths[1:]]
    return [draw(*shape, seed=seed + i).requires_grad_() for i, shape in enumerate(shapes)]


def run(activation, omega, tensors, route=twin_pass):
    layers = len(tensors) // 2
    return route(tensors[0], tensors[1 : layers + 1], tensors[layers + 1 :], activation, omega)[:2]


def recorded(x, weights, *more):
    """The same forward pass, pulled back by autograd."""
    return _forward(_with_members(x, weights[0]), weights, *more)


def checked(activation, omega, tensors, *, twice=True):
    torch.autograd.gradcheck(lambda *t: run(activation, omega, t), tensors)
    if twice:
        torch.autograd.gradgradcheck(lambda *t: run(activation, omega, t), tensors)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_first_and_second_order_equal_finite_differences(case):
    omega, hidden, outputs, members = case

    checked(ACTIVATIONS["softplus"], omega, parts(hidden, outputs, members))


@pytest.mark.parametrize("name", SMOOTH)
def test_of_every_smooth_activation(name):
    checked(ACTIVATIONS[name], 1.5, parts(outputs=2))


@pytest.mark.parametrize(
    "activation",
    [
        as_activation(nn.Mish()),
        as_activation(lambda z: z.sin() + z, lambda z: z.cos() + 1),
        as_activation(nn.Softplus(beta=2.0)),
    ],
    ids=["by autograd", "derivative given", "a module"],
)
def test_of_activations_of_ones_own(activation):
    checked(activation, 2.0, parts(outputs=2))


def test_finite_differences_would_see_a_wrong_backward():
    softplus = ACTIVATIONS["softplus"]
    wrong = dataclasses.replace(softplus, second=lambda z, a, s: 1.001 * s * (1 - s))

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        checked(wrong, 1.0, parts())


@pytest.mark.parametrize("name", [*SMOOTH, *PIECEWISE_LINEAR])
@pytest.mark.parametrize(("outputs", "members"), [(1, ()), (3, ()), (1, (M,)), (3, (M,))])
@pytest.mark.parametrize("which", ["both", "value", "jacobian"])
def test_equals_autograd_through_the_same_pass(name, outputs, members, which):
    tensors = parts((4, 3), outputs, members)
    gradients = []
    for route in (twin_pass, recorded):
        y, jacobian = run(ACTIVATIONS[name], 1.5, tensors, route)
        terms = {"value": y.sin().sum(), "jacobian": jacobian.square().sum()}
        loss = sum(terms.values()) if which == "both" else terms[which]
        gradients.append(torch.autograd.grad(loss, tensors, materialize_grads=True))

    for got, expected in zip(*gradients, strict=True):
        assert_close(got, expected, tolerance=1e-12)


@pytest.mark.parametrize("x_members", [(), (M,)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_members_in_one_pass_equal_one_after_another(x_members, outputs):
    tensors = parts((4, 3), outputs, (M,), x_members=x_members)
    together = run(ACTIVATIONS["tanh"], 1.5, tensors)

    for m in range(M):
        own = [tensors[0][m] if x_members else tensors[0], *(t[m] for t in tensors[1:])]
        for one, all_of_them in zip(run(ACTIVATIONS["tanh"], 1.5, own), together, strict=True):
            assert_close(all_of_them[m], one, tolerance=1e-12)


@pytest.mark.parametrize("frozen", [(0,), (1, 2), (3,), (0, 4, 5, 6)])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen):
    def gradients(still):
        tensors = parts()
        for i in still:
            tensors[i].requires_grad_(False)
        sum(t.sin().sum() for t in run(ACTIVATIONS["tanh"], 1.0, tensors)).backward()
        return [t.grad for t in tensors]

    for i, (got, whole) in enumerate(zip(gradients(frozen), gradients(()), strict=True)):
        assert torch.equal(got, whole) if i not in frozen else got is None


@pytest.mark.parametrize("shape", [(3,), (4, 3), (3, N, D), (M, N, 1)])
def test_other_shapes_are_refused(shape):
    tensors = parts(members=(M,))
    tensors[0] = draw(*shape)

    with pytest.raises(ShapeError, match=r"expected x of shape \[N, 2\] or \[2, N, 2\], got"):
        run(ACTIVATIONS["tanh"], 1.0, tensors)


class TestWhatElseDifferentiates:
    def functional(self, tensors):
        return lambda x: run(ACTIVATIONS["softplus"], 1.5, [x, *tensors[1:]])[1]

    @FORWARD_MODE
    @pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
    def test_torch_func(self, transform):
        tensors = [t.detach() for t in parts(outputs=2)]
        f = self.functional(tensors)
        expected = torch.autograd.functional.jacobian(f, tensors[0])

        assert_close(transform(f)(tensors[0]), expected, tolerance=1e-12)

    def test_vmap(self):
        tensors = [t.detach() for t in parts(outputs=2)]
        f, rows = self.functional(tensors), tensors[0].unsqueeze(1)

        assert_close(torch.func.vmap(f)(rows).squeeze(1), f(tensors[0]), tolerance=1e-12)

    @FORWARD_MODE
    def test_forward_mode(self):
        tensors = [t.detach() for t in parts(outputs=2)]
        f, v = self.functional(tensors), draw(N, D, seed=9)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(tensors[0], v)
            tangent = torch.autograd.forward_ad.unpack_dual(f(dual)).tangent

        assert_close(tangent, torch.func.jvp(f, (tensors[0],), (v,))[1], tolerance=1e-12)

    def test_batched_gradients(self):
        tensors = parts(outputs=2)
        jacobian = run(ACTIVATIONS["softplus"], 1.0, tensors)[1]
        cotangents = draw(4, *jacobian.shape)
        at_once = torch.autograd.grad(
            jacobian, tensors[:3], cotangents, retain_graph=True, is_grads_batched=True
        )

        for i, cotangent in enumerate(cotangents):
            alone = torch.autograd.grad(jacobian, tensors[:3], cotangent, retain_graph=True)
            for got, expected in zip(at_once, alone, strict=True):
                assert_close(got[i], expected, tolerance=1e-12)

    def test_autocast(self):
        tensors = [t.detach().float().requires_grad_() for t in parts((8, 8))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, jacobian = run(ACTIVATIONS["tanh"], 1.0, tensors)
        (y.float().sum() + jacobian.float().sum()).backward()

        assert y.dtype == torch.bfloat16
        assert all(t.grad.isfinite().all() for t in tensors)

    def test_a_second_backward_says_what_it_always_says(self):
        loss = run(ACTIVATIONS["tanh"], 1.0, parts())[1].sum()
        loss.backward()

        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_a_weight_that_an_activation_keeps_to_itself_is_trained():
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    net = mlp(activation=lambda z: torch.tanh(beta * z))
    net.value_and_jacobian(draw(4, 3))[1].sum().backward()
    trained = beta.grad.clone()
    beta.grad = None
    with torch.no_grad():
        low, high = (net_at(net, beta, beta.item() + step).sum().item() for step in (-1e-6, 1e-6))

    assert trained.item() == pytest.approx((high - low) / 2e-6, rel=1e-6)


def net_at(net, beta, value):
    before = beta.item()
    beta.fill_(value)
    jacobian = net.value_and_jacobian(draw(4, 3))[1]
    beta.fill_(before)
    return jacobian


class TestChangedLayers:
    """Layers that are more than their weights go the way of any other module."""

    def check(self, net):
        x = draw(4, 3)
        y, jacobian = net.value_and_jacobian(x)

        assert_close(y, net(x), tolerance=1e-14)
        assert_close(jacobian, jacobian_by_loop(net, x), tolerance=1e-12)

    def test_pruned(self):
        net = mlp(hidden=(6, 6))
        prune.random_unstructured(net.layers[1], "weight", amount=0.5)
        with torch.no_grad():  # what the pruning's hook has yet to multiply by the mask
            net.layers[1].weight_orig.mul_(2.0)

        assert not net.is_bare
        self.check(net)

    def test_hooked(self):
        net = mlp()
        seen = []
        net.layers[0].register_forward_hook(lambda *args: seen.append(1))

        self.check(net)
        assert seen

    def test_replaced(self):
        class Doubled(nn.Linear):
            def forward(self, x):
                return 2.0 * super().forward(x)

        net = mlp()
        net.layers[0] = Doubled(3, 7).double()

        self.check(net)

    def test_parametrized(self):
        class Squared(nn.Module):
            def forward(self, weight):
                return weight.square()

        net = mlp()
        parametrize.register_parametrization(net.layers[0], "weight", Squared())
        net.value_and_jacobian(draw(4, 3))[1].sum().backward()

        assert net.layers[0].parametrizations.weight.original.grad.any()
        self.check(net)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_gradients_under_ddp_are_those_of_one_process(tmp_path):
    twin = Twin(mlp(outputs=2))
    x = draw(5, 3)
    gradients = []
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        for module in (twin, nn.parallel.DistributedDataParallel(twin)):
            twin.zero_grad()
            y, jacobian = module(x)
            (y.sin().sum() + jacobian.square().sum()).backward()
            gradients.append([p.grad.clone() for p in twin.parameters()])
    finally:
        torch.distributed.destroy_process_group()

    for got, expected in zip(*gradients, strict=True):
        assert_close(got, expected)


def test_the_sequential_of_the_same_weights_agrees():
    net = mlp(outputs=3, omega_0=2.0)
    reference = Twin(as_sequential(net))
    gradients = []
    for twin in (Twin(net), reference):
        net.zero_grad()
        y, jacobian = twin(draw(4, 3))
        (y.square().sum() + jacobian.sin().sum()).backward()
        gradients.append([p.grad for p in net.parameters()])

    for got, expected in zip(*gradients, strict=True):
        assert_close(got, expected, tolerance=1e-12)
