"""Training: reproducible to the bit, interruptible, and honest about what went wrong."""

import contextlib
import hashlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from tests.learning.problems import Interrupt, draw, field, mlp, random_data

from pullback import DifferentialRegressor
from pullback.errors import CollapseWarning, GradientError, InputError, PullbackWarning
from pullback.learning.fit import fit
from pullback.learning.history import History
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.optimizers import AdamStepper, loss_terms

X, Y, DYDX = field()
FRESH = field(40, seed=9)
OPTIMIZERS = {
    "adam": {"optimizer": "adam", "epochs": 30, "batch_size": 16, "learning_rate": 0.05},
    "broyden": {"optimizer": "broyden", "epochs": 100},
    "lbfgs": {"optimizer": "lbfgs", "epochs": 100},
}


def model(optimizer="lbfgs", **more):
    settings = {"hidden": (8,), "activation": "gelu", "random_state": 3, **OPTIMIZERS[optimizer]}
    return DifferentialRegressor(**{**settings, **more})


def predictions(fitted):
    return np.concatenate([p.ravel() for p in fitted.predict(X, return_gradient=True)])


def fingerprint(optimizer, activation):
    fitted = model(optimizer, activation=activation).fit(X, Y, DYDX)
    return hashlib.sha256(predictions(fitted).tobytes()).hexdigest()


# Adam has a compiled step for some activations, where there is a compiler.
RUNS = [("adam", "gelu"), ("adam", "tanh"), ("lbfgs", "tanh"), ("broyden", "tanh")]
SCRIPT = """
from tests.learning.test_fit import RUNS, fingerprint
print(*(fingerprint(*run) for run in RUNS))
"""


class TestReproducible:
    @pytest.mark.parametrize("run", RUNS)
    def test_same_seed_same_bits(self, run):
        torch.manual_seed(1)
        first = fingerprint(*run)
        torch.manual_seed(2)
        np.random.seed(5)

        assert fingerprint(*run) == first

    def test_same_bits_in_another_process(self):
        other = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
        )

        assert other.stdout.split() == [fingerprint(*run) for run in RUNS]

    @pytest.mark.parametrize("random_state", [None, 0])
    def test_global_random_streams_are_left_alone(self, random_state):
        module = dropping()
        streams = torch.get_rng_state(), np.random.get_state()[1].copy()
        model("adam", random_state=random_state, module=module).fit(X, Y, DYDX)
        model("adam", random_state=random_state).fit(X, Y, DYDX)

        assert torch.equal(torch.get_rng_state(), streams[0])
        assert np.array_equal(np.random.get_state()[1], streams[1])

    def test_another_seed_other_weights(self):
        first, second = (model(random_state=seed, epochs=1).fit(X, Y, DYDX) for seed in (0, 1))

        assert not np.array_equal(predictions(first), predictions(second))

    def test_no_seed_gives_another_network_each_time(self):
        first, second = (model(random_state=None, epochs=1).fit(X, Y, DYDX) for _ in range(2))

        assert not np.array_equal(predictions(first), predictions(second))

    def test_dropout_of_a_users_module_follows_the_seed(self):
        first, second = (model("adam", module=dropping()).fit(X, Y, DYDX) for _ in range(2))

        assert np.array_equal(predictions(first), predictions(second))


def dropping():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1)
    )


class TestStateGivenBack:
    @pytest.mark.parametrize("error", [None, ValueError("from inside"), KeyboardInterrupt()])
    def test_threads_grad_mode_and_data(self, error, monkeypatch):
        torch.set_num_threads(2)
        x, y, dydx = torch.tensor(X), torch.tensor(Y), torch.tensor(DYDX)
        kept = [t.clone() for t in (x, y, dydx)]
        stream = torch.get_rng_state()
        if error:
            Interrupt(at=5, error=error).install(monkeypatch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PullbackWarning)
            expected = pytest.raises(ValueError, match="from inside")
            with expected if isinstance(error, ValueError) else contextlib.nullcontext():
                model("adam").fit(x, y, dydx)

        assert torch.get_num_threads() == 2
        assert torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), stream)
        assert all(map(torch.equal, kept, (x, y, dydx)))
        assert not x.requires_grad


class TestHistory:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_every_term_of_every_epoch(self, optimizer):
        history = model(optimizer).fit(X, Y, DYDX, validation_data=FRESH).history_

        assert set(history.train) == set(history.validation) == {"value", "derivative", "total"}
        for terms in (history.train, history.validation):
            assert {len(series) for series in terms.values()} == {len(history.epochs)}
            np.testing.assert_allclose(
                np.array(terms["total"]), np.array(terms["value"]) + terms["derivative"]
            )
        assert history.train["total"][-1] < 0.1 * history.train["total"][0]
        assert history.optimizer == optimizer
        assert history.seconds > 0
        assert len(history.learning_rate) == len(history.epochs)
        assert History.from_json(history.to_json()) == history

    def test_taking_the_derivatives_away_changes_the_fit(self):
        with_, without = model("adam").fit(X, Y, DYDX), model("adam").fit(X, Y)

        assert "derivative" not in without.history_.train
        errors = [
            np.square(m.predict_gradient(FRESH[0]) - FRESH[2]).mean() for m in (with_, without)
        ]
        assert errors[0] < 0.5 * errors[1]


class TestValidation:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_the_best_weights_are_kept(self, optimizer):
        """Few noisy rows and many iterations: the held-out loss turns upwards."""
        noisy = Y[:12] + np.random.default_rng(0).normal(size=12)
        fitted = model(optimizer, epochs=300, batch_size=4, hidden=(30,), learning_rate=0.03)
        fitted.fit(X[:12], noisy, validation_data=FRESH[:2])
        history, scaling = fitted.history_, fitted.surrogate_.scaling
        held = history.validation["total"]
        error = (fitted.predict(FRESH[0]) - FRESH[1]) / float(scaling.y_scale)

        assert min(held) < held[-1]
        assert history.best_epoch == history.epochs[held.index(min(held))]
        assert np.square(error).mean() == pytest.approx(min(held), rel=1e-4)

    def test_early_stopping_ends_the_run_and_says_so(self):
        noisy = Y + np.random.default_rng(0).normal(size=60)
        fitted = model("adam", epochs=2_000, early_stopping=True, patience=20, check_labels=False)
        history = fitted.fit(X, noisy, DYDX).history_

        assert history.epochs[-1] == history.best_epoch + 20
        assert f"no better on held-out rows since epoch {history.best_epoch}" in history.events[-1]

    def test_held_out_rows_are_not_trained_on(self):
        seen = model("adam", early_stopping=True, validation_fraction=0.5).fit(X, Y, DYDX)

        assert "total" in seen.history_.validation
        assert not np.array_equal(predictions(seen), predictions(model("adam").fit(X, Y, DYDX)))

    def test_without_derivatives_in_the_loss_none_are_needed_held_out(self):
        fitted = model("adam", derivative_weight=0).fit(X, Y, DYDX, validation_data=FRESH)

        assert set(fitted.history_.validation) == {"value", "total"}

    def test_long_validation_data_are_taken_in_chunks(self, monkeypatch):
        fitted = []
        for chunk in (16_384, 7):
            monkeypatch.setattr("pullback.learning.fit._CHUNK", chunk)
            fitted.append(model("adam").fit(X, Y, DYDX, validation_data=FRESH).history_)

        np.testing.assert_allclose(*(h.validation["total"] for h in fitted), rtol=1e-5)

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"early_stopping": True}, "early_stopping: expected at least 2 rows"),
            ({"validation_fraction": 1.0}, "validation_fraction: expected between 0 and 1"),
            ({"patience": 0}, "patience: expected a number above 0"),
            ({"restarts": -1}, "restarts: expected at least 0, got -1"),
            ({"weight_decay": -1.0}, "weight_decay: expected at least 0"),
            ({"derivative_weight": -1.0}, "derivative_weight: expected at least 0"),
        ],
    )
    def test_impossible_settings_are_refused(self, wrong, words):
        with pytest.raises(InputError, match=words):
            model(**wrong).fit(X[:1], Y[:1], DYDX[:1])


class TestInterrupted:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_keeps_the_last_weights_and_says_so(self, optimizer, monkeypatch):
        Interrupt(at=70).install(monkeypatch)
        with pytest.warns(PullbackWarning, match="interrupted after epoch .* the last weights so"):
            fitted = model(optimizer).fit(X, Y, DYDX)
        history = fitted.history_
        monkeypatch.undo()

        assert history.interrupted
        assert history.events[-1].startswith(f"interrupted after epoch {history.epochs[-1]} of ")
        surrogate = fitted.surrogate_
        data = standardised(surrogate)
        terms = loss_terms(surrogate.twin, DifferentialLoss.of(data), data)
        reached = sum(float(t.detach()) for t in terms.values())
        # Adam has gone on for part of an epoch, a full batch is where its last look was.
        assert reached < (1.3 if optimizer == "adam" else 1 + 1e-9) * history.train["total"][-1]

    def test_keeps_the_best_weights_on_held_out_rows(self, monkeypatch):
        Interrupt(at=70).install(monkeypatch)
        with pytest.warns(PullbackWarning, match="the best weights so far kept"):
            fitted = model("adam").fit(X, Y, DYDX, validation_data=FRESH)

        assert fitted.history_.best_epoch in fitted.history_.epochs

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_in_the_first_epoch(self, optimizer, monkeypatch):
        Interrupt(at=2).install(monkeypatch)
        with pytest.warns(PullbackWarning, match="interrupted after epoch 0 of"):
            fitted = model(optimizer).fit(X, Y, DYDX)

        assert np.isfinite(predictions(fitted)).all()
        assert fitted.history_.epochs == []


def standardised(surrogate):
    from pullback.learning.data import DifferentialData

    data = DifferentialData(torch.tensor(X), torch.tensor(Y)[:, None], torch.tensor(DYDX)[:, None])
    like = next(surrogate.twin.parameters())
    return surrogate.scaling.scale(data).map(lambda t: t.to(like))


class TestTrouble:
    def test_an_infinite_loss_is_tried_again_and_then_an_error(self):
        with (
            pytest.warns(CollapseWarning, match="restarted from new weights at half the learning"),
            pytest.raises(GradientError, match=r"the loss is (nan|inf|-inf) after epoch"),
        ):
            model("adam", learning_rate=1e30, restarts=1).fit(X, Y, DYDX)

    def test_every_try_is_told(self):
        with pytest.warns(CollapseWarning) as told, pytest.raises(GradientError):
            model("adam", learning_rate=1e30, restarts=2).fit(X, Y, DYDX)

        assert [str(w.message).split(";")[0] for w in told] == ["fit: the loss became infinite"] * 2

    def test_a_collapse_is_restarted_at_half_the_rate(self, monkeypatch):
        """Two verdicts of a collapse; the third try is kept, whatever the others' loss."""
        verdicts = iter([True, True, False])
        monkeypatch.setattr("pullback.learning.training.is_collapsed", lambda *_: next(verdicts))
        with pytest.warns(CollapseWarning) as told:
            fitted = model("adam", learning_rate=0.04, restarts=12).fit(X, Y, DYDX)
        history = fitted.history_

        assert len(told) == 2
        assert "training ended as a constant; restarted" in str(told[0].message)
        assert max(history.learning_rate) == pytest.approx(0.01, rel=0.01)
        assert [e for e in history.events if "restarted" in e] == [
            str(w.message).removeprefix("fit: ") for w in told
        ]
        assert fitted.predict(X).std() > 0.1 * Y.std()

    def test_the_last_collapse_says_that_it_gave_up(self):
        with pytest.warns(CollapseWarning) as told:
            fitted = collapsing(learning_rate=10.0, restarts=1).fit(X, Y, DYDX)

        assert "training ended as a constant in 2 tries; the best is kept" in str(told[-1].message)
        assert fitted.history_.events[-1] == str(told[-1].message).removeprefix("fit: ")
        assert np.isfinite(predictions(fitted)).all()

    @pytest.mark.parametrize("y", [np.full(60, 3.0), draw(60).numpy()], ids=["constant", "noise"])
    def test_nothing_to_learn_is_no_collapse(self, y):
        fitted = model("adam", weight_decay=10.0).fit(X, y)

        assert not [e for e in fitted.history_.events if "restart" in e]

    def test_events_of_the_kept_try_survive(self, monkeypatch):
        """Both tries end as a constant after an early stop: the kept one still says it stopped."""
        monkeypatch.setattr("pullback.learning.training.is_collapsed", lambda *_: True)
        noisy = Y + np.random.default_rng(0).normal(size=60)
        with pytest.warns(CollapseWarning):
            fitted = model("adam", epochs=500, early_stopping=True, patience=5, restarts=1).fit(
                X, noisy
            )
        words = " ".join(fitted.history_.events)

        assert "stopped early" in words
        assert "in 2 tries" in words


def collapsing(**more):
    return DifferentialRegressor(
        (20, 20), "sigmoid", optimizer="adam", epochs=10, batch_size=20, random_state=0, **more
    )


def test_the_loop_itself_returns_the_best_weights():
    """`fit` alone, on the parts that users of the library's inside would put together."""
    data, held = random_data(rows=20), random_data(rows=20, seed=70)
    twin, loss = Twin(mlp(outputs=2)), DifferentialLoss.of(data)
    stepper = AdamStepper(twin, loss, data, 60, 5, 0.05, 0.0, torch.Generator().manual_seed(0))
    history = fit(twin, loss, stepper, History("adam"), validation=held)
    now = sum(float(t.detach()) for t in loss_terms(twin, loss, held).values())

    assert now == pytest.approx(min(history.validation["total"]), rel=1e-12)
    assert history.best_epoch < 60
