"""Labels: right against one row at a time, and the same whatever the chunk, rank or restart."""

import numpy as np
import pytest
import torch

from pullback.derivatives import gradient_by_differences
from pullback.errors import (
    CoupledRowsError,
    InputError,
    LabelError,
    LabelWarning,
    ShapeError,
    UnconnectedInputError,
)
from pullback.learning import DifferentialRegressor
from pullback.pathwise import Labels, LogNormal, NormalVector, Uniform, pathwise
from pullback.pathwise.draws import BLOCK, PseudoRandom, Sobol

VOL = 0.2
SPOT = {"spot": LogNormal(1.0, 0.3)}
SPOT_AND_STRIKE = {"spot": LogNormal(1.0, 0.3), "strike": Uniform(0.9, 1.3)}


def call(state, noise):
    """A call over as many steps as there is noise."""
    steps = noise.shape[1]
    shock = VOL * noise.sum(1) / steps**0.5 - 0.5 * VOL**2
    return torch.relu(state["spot"] * shock.exp() - state.get("strike", 1.1))


def two_outputs(state, noise):
    end = state["spot"] * torch.exp(VOL * noise[:, 0])
    return torch.stack([torch.relu(end - 1.1), end.square()], dim=1)


def by_loop(payoff, x, noise):
    """One row, one output, one autograd.grad at a time."""
    values, grads = [], []
    for row, z in zip(x, noise, strict=True):
        leaf = row[None].clone().requires_grad_()
        y = payoff(leaf, z[None]).reshape(-1)
        grads.append(
            torch.stack([torch.autograd.grad(out, leaf, retain_graph=True)[0][0] for out in y])
        )
        values.append(y.detach())
    return torch.stack(values), torch.stack(grads)


def smooth(x, noise):
    return torch.stack([(x * noise).sum(1).sin(), x[:, 0] ** 2 * noise[:, 1]], dim=1)


def test_a_given_state_and_noise_match_one_row_at_a_time():
    x, noise = torch.randn(37, 3, dtype=torch.float64), torch.randn(37, 3, dtype=torch.float64)

    labels = pathwise(smooth, x, noise, chunk_rows=10, check_labels=False)

    y, dydx = by_loop(smooth, x, noise)
    torch.testing.assert_close(labels.y, y)
    torch.testing.assert_close(labels.dydx, dydx)
    torch.testing.assert_close(labels.x, x)
    differences = gradient_by_differences(lambda x: smooth(x, noise), x)
    torch.testing.assert_close(labels.dydx, differences, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("wrong", ["scaled", "shifted", "transposed"])
def test_the_oracle_sees_wrong_labels(wrong):
    x, noise = torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    dydx = pathwise(smooth, x, noise, check_labels=False).dydx
    damaged = {"scaled": 1.001 * dydx, "shifted": dydx.roll(1, 0), "transposed": dydx.mT}[wrong]
    with pytest.raises(AssertionError):
        torch.testing.assert_close(damaged, by_loop(smooth, x, noise)[1])


@pytest.mark.parametrize("sampler", ["pseudo", "sobol"])
@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("paths", [1, 3])
def test_chunks_ranks_and_restarts_give_the_same_labels(sampler, antithetic, paths):
    options = {
        "sampler": sampler, "antithetic": antithetic, "paths_per_state": paths, "seed": 11,
        "check_labels": False,
    }  # fmt: skip
    whole = pathwise(call, SPOT_AND_STRIKE, 2, rows=3000, **options)

    chunked = pathwise(call, SPOT_AND_STRIKE, 2, rows=3000, chunk_rows=700, **options)
    ranks = [
        pathwise(call, SPOT_AND_STRIKE, 2, rows=range(a, b), **options)
        for a, b in ((0, 1000), (1000, 2100), (2100, 3000))
    ]

    for name in ("x", "y", "dydx"):
        expected = getattr(whole, name)
        torch.testing.assert_close(getattr(chunked, name), expected, rtol=1e-13, atol=1e-15)
        joined = torch.cat([getattr(rank, name) for rank in ranks])
        torch.testing.assert_close(joined, expected, rtol=1e-13, atol=1e-15)


def test_a_given_state_keeps_its_noise_when_a_rank_says_which_rows_it_has():
    spot = torch.linspace(0.7, 1.5, 2500, dtype=torch.float64)
    whole = pathwise(call, {"spot": spot}, 2, check_labels=False)
    part = pathwise(call, {"spot": spot[1500:]}, 2, rows=range(1500, 2500), check_labels=False)
    assert torch.equal(part.y, whole.y[1500:])
    assert not torch.equal(part.y, pathwise(call, {"spot": spot[1500:]}, 2, check_labels=False).y)


def test_rows_are_independent_draws():
    noise = PseudoRandom(3, 0, (2,), 1).normals(0, 8 * BLOCK)[:, 0]
    assert abs(float(noise.mean())) < 4 / (16 * BLOCK) ** 0.5
    assert abs(float(noise.var()) - 1) < 4 * (2 / (16 * BLOCK)) ** 0.5
    # Blocks do not repeat each other, nor the state's draws.
    blocks = noise[:, 0].reshape(8, BLOCK)
    correlation = torch.corrcoef(blocks) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 5 / BLOCK**0.5


def test_the_same_seed_is_common_random_numbers():
    spot = torch.full((4096,), 1.1, dtype=torch.float64)
    up, down = (
        pathwise(call, {"spot": spot + h}, 1, check_labels=False, check_rows=False).y
        for h in (1e-6, -1e-6)
    )
    delta = pathwise(call, {"spot": spot}, 1, check_labels=False).dydx[:, 0]
    bumped = (up - down) / 2e-6
    smooth_rows = (bumped - delta).abs() < 1e-3
    assert smooth_rows.double().mean() > 0.999


def test_antithetic_paths_are_averaged_in_one_row():
    spot = torch.full((50,), 1.1, dtype=torch.float64)
    noise = PseudoRandom(0, 0, (1,), 1).normals(0, 50)[:, 0]
    labels = pathwise(call, {"spot": spot}, 1, antithetic=True, check_labels=False)
    pair = [pathwise(call, {"spot": spot}, z, check_labels=False) for z in (noise, -noise)]
    torch.testing.assert_close(labels.y, (pair[0].y + pair[1].y) / 2)
    torch.testing.assert_close(labels.dydx, (pair[0].dydx + pair[1].dydx) / 2)


def test_paths_per_state_are_averaged_in_one_row():
    spot = torch.full((20,), 1.1, dtype=torch.float64)
    noise = PseudoRandom(0, 0, (1,), 4).normals(0, 20)
    labels = pathwise(call, {"spot": spot}, 1, paths_per_state=4, check_labels=False)
    each = [call({"spot": spot}, noise[:, k]) for k in range(4)]
    torch.testing.assert_close(labels.y[:, 0], torch.stack(each).mean(0))


def test_joint_sobol_points_err_far_less_than_independent_draws():
    # Black and Scholes' call from lognormal states is itself lognormal: variance 0.3² + 0.2².
    total = torch.tensor(0.3**2 + VOL**2, dtype=torch.float64).sqrt()
    d1 = (torch.tensor(1 / 1.1).log() + 0.5 * 0.3**2 + 0.5 * total**2) / total
    mean = torch.tensor(0.5 * 0.3**2).exp()
    exact = float(mean * torch.special.ndtr(d1) - 1.1 * torch.special.ndtr(d1 - total))
    errors = {}
    for sampler in ("pseudo", "sobol"):
        means = [
            pathwise(
                call, SPOT, 1, rows=4096, sampler=sampler, seed=seed, check_labels=False
            ).y.mean()
            for seed in range(8)
        ]
        errors[sampler] = np.mean([(float(mean) - exact) ** 2 for mean in means]) ** 0.5
    # The pseudo-random error is σ/√N = 0.0031; eight of them are within a factor of two.
    assert 0.0015 < errors["pseudo"] < 0.0062
    assert errors["sobol"] < errors["pseudo"] / 10


def test_sobol_draws_any_slice():
    draws = Sobol(5, 2, (3,), 1)
    whole = Sobol(5, 2, (3,), 1).normals(0, 64)
    assert torch.equal(draws.normals(40, 64), whole[40:])
    assert torch.equal(draws.normals(8, 16), whole[8:16])
    assert Sobol(5, 2, (3,), 1).uniforms(0, 4096).min() > 0
    assert whole.isfinite().all()


def test_names_travel_into_the_estimator():
    labels = pathwise(call, SPOT_AND_STRIKE, 1, rows=512, outputs=["price"], units={"price": "EUR"})
    assert isinstance(labels, Labels)
    assert labels.columns.derivatives == ("dprice/dspot", "dprice/dstrike")
    assert labels.take(slice(0, 3)).columns is labels.columns
    model = DifferentialRegressor(hidden=(8,), epochs=1, check_labels=False, random_state=0)
    model.fit(labels.x, labels.y, labels.dydx, columns=labels.columns)
    assert model.columns_.unit("price") == "EUR"


def test_vectors_give_a_column_each():
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
    state = {"spot": NormalVector((1.0, 1.0), 0.09 * torch.eye(2)), "strike": Uniform(0.9, 1.1)}

    def basket(state, noise):
        return torch.relu((state["spot"] + 0.2 * noise) @ weights - state["strike"])

    labels = pathwise(basket, state, 2, rows=256)
    assert labels.columns.inputs == ("spot1", "spot2", "strike")
    paying = labels.y[:, 0] > 0
    expected = torch.tensor([0.25, 0.75, -1.0], dtype=torch.float64)
    assert torch.equal(labels.dydx[paying, 0], expected.expand(int(paying.sum()), 3))
    assert (labels.dydx[~paying] == 0).all()


def test_several_outputs():
    labels = pathwise(two_outputs, SPOT, 1, rows=100, outputs=["call", "square"])
    assert labels.y.shape == (100, 2)
    assert labels.dydx.shape == (100, 2, 1)
    torch.testing.assert_close(labels.dydx[:, 1, 0], 2 * labels.y[:, 1] / labels.x[:, 0])


def test_derivatives_that_are_not_wanted_are_unknown():
    labels = pathwise(call, SPOT_AND_STRIKE, 1, rows=64, wrt="strike")
    assert labels.dydx[:, 0, 0].isnan().all()
    assert labels.dydx[:, 0, 1].isfinite().all()
    state = {"spot": torch.rand(64) + 0.5, "alive": torch.arange(64) % 2 == 0}

    def knocked(state, noise):
        return torch.where(state["alive"], call({"spot": state["spot"]}, noise), 0.0)

    labels = pathwise(knocked, state, 1)
    assert labels.columns.inputs == ("spot", "alive")
    assert labels.dydx[:, 0, 1].isnan().all()
    assert labels.x.dtype == torch.float32


def test_a_module_and_its_modes_are_left_alone():
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Softplus(), torch.nn.Linear(4, 1))
    x = torch.randn(16, 2, requires_grad=True)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with torch.no_grad():
        labels = pathwise(lambda s, z: net(s)[:, 0] + z[:, 0], x, 1, check_labels=False)
    assert labels.dydx.abs().sum() > 0
    assert not labels.dydx.requires_grad
    assert x.grad is None
    assert all(p.grad is None for p in net.parameters())
    with torch.inference_mode():
        same = pathwise(
            lambda s, z: net(s)[:, 0] + z[:, 0], x.detach().clone(), 1, check_labels=False
        )
    assert torch.equal(same.dydx, labels.dydx)
    assert torch.equal(before, torch.get_rng_state())


def test_a_payoff_may_work_in_place():
    x, noise = torch.rand(2, 80, 2, dtype=torch.float64)
    kept = x.clone(), noise.clone()

    def payoff(state, noise):
        return state.mul_(2.0).sum(1) * noise[:, 0].exp_()

    labels = pathwise(payoff, x, noise, check_labels="raise")
    assert torch.equal(x, kept[0])
    assert torch.equal(noise, kept[1])
    torch.testing.assert_close(labels.dydx[:, 0], (2 * noise[:, :1].exp()).expand(80, 2))


REFUSED = [
    ({"noise": torch.zeros(4, 2)}, InputError, "51 times"),
    ({"noise": torch.randn(1, 2)}, InputError, "share one draw"),
    ({"noise": torch.randn(1, 2).expand(4, 2)}, InputError, "share one draw"),
    ({"noise": torch.randn(3, 2)}, ShapeError, r"noise \[N, …\] with N = 4 rows"),
    ({"noise": torch.randn(4, 2), "paths_per_state": 2}, InputError, "paths_per_state needs noise"),
    ({"noise": -1}, InputError, "the shape of one path's normals"),
    ({"noise": 1, "paths_per_state": 0}, InputError, "paths_per_state to be 1 or more, got 0"),
    ({"noise": 1, "seed": -1}, InputError, "seed to be 0 or more, got -1"),
    ({"noise": 1, "chunk_rows": 0}, InputError, "chunk_rows to be 1 or more"),
    ({"noise": 1, "sampler": "halton"}, InputError, "'pseudo' or 'sobol', got 'halton'"),
    ({"noise": 1, "check_labels": "maybe"}, InputError, "check_labels='raise', 'warn' or False"),
    ({"noise": 1, "rows": 5}, InputError, "number the 4 rows of the state"),
    ({"noise": 1, "rows": range(0, 8, 2)}, InputError, "at least one row"),
    ({"noise": 1, "wrt": "vol"}, InputError, r"parts of the state among \['spot'\], got 'vol'"),
    ({"noise": 1, "outputs": ["a", "b"]}, InputError, "expected 1 names in outputs, got 2"),
    ({"noise": 1, "dtype": torch.float64}, InputError, "a given state decides dtype"),
    ({"noise": 1, "state": {}}, InputError, "at least one part"),
    ({"noise": 1, "state": torch.ones(4)}, ShapeError, r"state of shape \[N, D\], got \[4\]"),
    ({"noise": 1, "state": {"spot": [1.0]}}, InputError, r"state\['spot'\] to be a tensor"),
    ({"noise": 1, "state": {"spot": torch.arange(4)}}, InputError, "at least one part to diff"),
    ({"noise": 1, "state": {"spot": torch.ones(4), "k": Uniform(0, 1)}}, InputError, "got both"),
    ({"noise": 1, "state": {"spot": Uniform(0, 1)}}, InputError, "needs rows="),
    ({"noise": 22_000, "sampler": "sobol", "check_rows": False}, InputError, "at most 21201"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), REFUSED)
def test_what_is_refused_is_told(change, error, words):
    arguments = {"state": {"spot": torch.ones(4)}, "check_labels": False, **change}
    with pytest.raises(error, match=words):
        pathwise(call, arguments.pop("state"), arguments.pop("noise"), **arguments)


def test_coupled_paths_are_refused():
    with pytest.raises(CoupledRowsError, match="only the other rows"):
        pathwise(lambda s, z: s["spot"] - s["spot"].mean() + z[:, 0], SPOT, 1, rows=16)


def test_a_part_that_does_not_matter_is_an_error_or_zero():
    state = {**SPOT, "rate": Uniform(0.0, 0.1)}
    with pytest.raises(UnconnectedInputError, match="no derivative by rate"):
        pathwise(call, state, 1, rows=16)
    labels = pathwise(call, state, 1, rows=16, unconnected="zero")
    assert (labels.dydx[:, 0, 1] == 0).all()


def digital(state, noise):
    return (state["spot"] * torch.exp(VOL * noise[:, 0] - 0.02) > 1.1).double()


def test_the_label_check_is_on():
    with pytest.raises(LabelError, match=r"derivative of price by spot is wrong: labels average 0"):
        pathwise(digital, SPOT, 1, rows=64, outputs=["price"])
    with pytest.warns(LabelWarning, match="Smooth the condition with soft_step"):
        labels = pathwise(digital, SPOT, 1, rows=64, check_labels="warn", unconnected="zero")
    assert not labels.report.ok
    assert pathwise(call, SPOT, 1, rows=64).report.ok


def test_labels_of_a_row_do_not_depend_on_the_dtype_of_its_noise():
    exact = pathwise(call, SPOT, 1, rows=2000, check_labels=False)
    single = pathwise(call, SPOT, 1, rows=2000, check_labels=False, dtype=torch.float32)
    assert single.y.dtype == torch.float32
    torch.testing.assert_close(single.y.double(), exact.y, atol=1e-6, rtol=0)


def test_one_shared_draw_errs_far_more_than_independent_rows():
    """The reason it is refused: errors of the mean label, over 16 seeds."""
    spot = torch.full((4096,), 1.1, dtype=torch.float64)
    independent, shared = [], []
    for seed in range(16):
        noise = torch.randn(
            4096, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        independent.append(float(call({"spot": spot}, noise).mean()))
        shared.append(float(call({"spot": spot}, noise[:1].expand(4096, 1)).mean()))
    # √4096 = 64 in expectation; a ratio of two deviations of 16 draws is within a factor of two.
    assert np.std(shared) > 30 * np.std(independent)
