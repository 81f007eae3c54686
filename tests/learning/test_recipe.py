"""The recipe: full batches for few exact labels, Adam for the rest, with the reason."""

from functools import partial

import numpy as np
import pytest
import torch
from tests.learning.problems import draw, field

from pullback.errors import InputError
from pullback.learning.data import DifferentialData
from pullback.learning.noise import measure_noise
from pullback.learning.recipe import FEW_ROWS, MOST_DENSE, choose_recipe
from pullback.learning.scaling import Scaling
from pullback.pathwise.markets.bachelier import BachelierBasket

choose = partial(choose_recipe, weights=1_000)


def exact(rows=200, noise=0.0, slope_noise=0.0):
    x, y, dydx = (torch.from_numpy(a) for a in field(rows))
    y = y[:, None] + noise * draw(rows, 1, seed=3)
    dydx = (dydx + slope_noise * draw(rows, 2, seed=4))[:, None]
    data = DifferentialData(x, y, dydx)
    return Scaling.from_data(data).scale(data)


class TestAuto:
    @pytest.mark.parametrize("rows", [20, 200, 1_500])
    def test_exact_and_few_take_full_batches(self, rows):
        recipe = choose(exact(rows))

        assert (recipe.optimizer, recipe.epochs, recipe.batch_size) == ("broyden", 4_000, rows)
        assert f"broyden: {rows} rows whose values and derivatives agree" in recipe.reason

    def test_a_matrix_that_would_be_large_is_not_kept(self):
        chosen = [choose_recipe(exact(), MOST_DENSE + more).optimizer for more in (0, 1)]

        assert chosen == ["broyden", "lbfgs"]

    @pytest.mark.parametrize("noise", [{"noise": 0.5}, {"slope_noise": 1.5}])
    def test_noisy_ones_take_adam(self, noise):
        recipe = choose(exact(**noise))

        assert recipe.optimizer == "adam"
        assert "the labels are noisy, and full batches would fit the noise" in recipe.reason

    @pytest.mark.parametrize("inputs", [1, 7, 20])
    @pytest.mark.parametrize("rows", [200, 1_000, 4_000])
    def test_payoffs_of_simulated_paths_take_adam(self, inputs, rows):
        """Half of them are zero with all their derivatives, and agree with their neighbours."""
        market = BachelierBasket.random(inputs, np.random.RandomState(1))
        sample = market.sample(rows, np.random.RandomState(2))
        data = DifferentialData(
            *(torch.from_numpy(a) for a in (sample.x, sample.y[:, None], sample.dydx[:, None]))
        )

        assert choose(Scaling.from_data(data).scale(data)).optimizer == "adam"

    @pytest.mark.parametrize("rows", [50, 100, 400])
    def test_a_wavy_function_known_exactly_takes_full_batches(self, rows):
        x = np.random.default_rng(0).uniform(-1, 1.5, (rows, 2))
        y = (x**2 - 10 * np.cos(2 * np.pi * x)).sum(1)
        dydx = 2 * x + 20 * np.pi * np.sin(2 * np.pi * x)
        data = DifferentialData(*(torch.from_numpy(a) for a in (x, y[:, None], dydx[:, None])))

        assert choose(Scaling.from_data(data).scale(data)).optimizer == "broyden"

    def test_many_rows_take_adam(self):
        x = draw(FEW_ROWS + 1, 1)
        recipe = choose(DifferentialData(x, x.sin(), x.cos()[:, None]))

        assert recipe.optimizer == "adam"
        assert f"{FEW_ROWS + 1} rows are too many" in recipe.reason

    def test_values_only_take_adam(self):
        data = exact()
        recipe = choose(DifferentialData(data.x, data.y))

        assert recipe.optimizer == "adam"
        assert "without derivatives, noise" in recipe.reason

    @pytest.mark.parametrize("known", [0, 1])
    def test_labels_with_no_known_neighbours_are_not_called_exact(self, known):
        data = exact()
        data.dydx[known:] = torch.nan
        recipe = choose(data)

        assert recipe.optimizer == "adam"
        assert "no two neighbours have known derivatives" in recipe.reason

    def test_some_unknown_labels_do_not_hide_that_the_rest_is_exact(self):
        data = exact()
        data.dydx[::7, 0, 1] = torch.nan
        data.y[1::9] = torch.nan

        assert choose(data).optimizer == "broyden"


class TestBySize:
    def test_noisy_labels_take_a_low_peak_and_a_decay_that_grows_with_the_inputs(self):
        noisy = choose(exact(noise=0.5))
        x = draw(300, 40, seed=1)
        wide = choose(DifferentialData(x, x[:, :1]))

        assert (noisy.learning_rate, noisy.weight_decay) == (0.01, 0.02)
        assert wide.weight_decay == 0.3

    def test_exact_labels_take_a_high_peak_more_passes_and_no_decay(self):
        many, noisy = (choose(exact(FEW_ROWS + 1, noise=n)) for n in (0.0, 0.5))

        assert (many.optimizer, many.learning_rate, many.weight_decay) == ("adam", 0.03, 0.0)
        assert (many.epochs, noisy.epochs) == (300, 80)

    def test_rows_far_apart_take_small_weights(self):
        x = torch.tensor([-3.14, -1.05, 1.05, 3.14]).double()[:, None]
        data = DifferentialData(x, x * x.sin(), (x.sin() + x * x.cos())[:, None])
        sparse = choose(Scaling.from_data(data).scale(data))

        assert (sparse.optimizer, sparse.weight_decay) == ("broyden", 1e-5)
        assert choose(exact()).weight_decay == 0.0


class TestNoise:
    def test_measures_the_noise_of_values(self):
        for noise in (0.2, 0.4):
            data = exact(800)
            data.y.add_(noise * draw(800, 1, seed=8))

            # A root mean square over some 800 dependent pairs: its standard error is some 5 %.
            assert measure_noise(data.x, data.y, data.dydx).value == pytest.approx(noise, rel=0.2)

    def test_a_miss_that_shrinks_with_the_distance_is_curvature(self):
        x = torch.tensor([-3.14, -1.05, 1.05, 3.14]).double()[:, None]
        far_apart = measure_noise(x, x * x.sin(), (x.sin() + x * x.cos())[:, None])

        assert far_apart.value > 0.5
        assert far_apart.exponent > 1
        assert not far_apart.present

    def test_the_noisier_output_counts(self):
        data = exact()
        y = torch.cat([data.y, data.y + 0.5 * draw(200, 1, seed=8)], 1)
        noise = measure_noise(data.x, y, data.dydx.expand(-1, 2, -1))

        assert noise.value > 0.3
        assert noise.present

    def test_repeated_rows_show_noise_too(self):
        x = torch.zeros(50, 2).double()
        noise = measure_noise(x, draw(50, 1), torch.ones(50, 1, 2).double())

        assert noise.value > 0.5
        assert noise.present

    def test_one_row_has_no_neighbour(self):
        one = (torch.ones(s).double() for s in ((1, 2), (1, 1), (1, 1, 2)))

        assert not measure_noise(*one).known


class TestAsked:
    def test_what_the_user_sets_is_kept(self):
        recipe = choose(exact(), optimizer="adam", epochs=7, batch_size=50, learning_rate=0.3)

        assert (recipe.optimizer, recipe.epochs) == ("adam", 7)
        assert (recipe.batch_size, recipe.learning_rate) == (50, 0.3)
        assert recipe.reason == "adam: asked for"

    def test_adam_takes_1600_steps(self):
        for rows in (100, 4_096, 50_000):
            recipe = choose(DifferentialData(draw(rows, 1), draw(rows, 1)), optimizer="adam")

            assert recipe.epochs * np.ceil(rows / recipe.batch_size) >= 1_600
            assert recipe.learning_rate == 0.01

    def test_a_batch_is_no_larger_than_the_data(self):
        assert choose(exact(20), optimizer="adam", batch_size=999).batch_size == 20

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (
                {"optimizer": "sgd"},
                "optimizer: expected 'auto', 'adam', 'broyden' or 'lbfgs', got 'sgd'",
            ),
            ({"epochs": 0}, "epochs: expected a number above 0, got 0"),
            ({"batch_size": -1}, "batch_size: expected a number above 0"),
            ({"learning_rate": 0.0}, "learning_rate: expected"),
            ({"learning_rate": float("nan")}, "learning_rate: expected"),
        ],
    )
    def test_impossible_numbers_are_refused(self, wrong, words):
        with pytest.raises(InputError, match=words):
            choose(exact(), **wrong)
