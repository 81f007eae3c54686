"""Checkpoints: an interrupted run continues to the same bits, and no other run does."""

import itertools
import json

import numpy as np
import pytest
from tests.learning.problems import Interrupt, field, two_fields

from pullback import DifferentialRegressor
from pullback.errors import CollapseWarning, InputError, ModelFileError, PullbackWarning
from pullback.learning.history import History
from pullback.learning.tensor_tree import CONFIG, WEIGHTS

X, Y, DYDX = field()
FRESH = field(30, seed=9)
# 60 rows in batches of 16: four steps an epoch, each one evaluation of the loss.
SETTINGS = {
    "adam": {"optimizer": "adam", "epochs": 25, "batch_size": 16, "learning_rate": 0.02},
    "broyden": {"optimizer": "broyden", "epochs": 80},
    "lbfgs": {"optimizer": "lbfgs", "epochs": 80},
}


def model(folder=None, optimizer="adam", **more):
    fixed = {"hidden": (6,), "activation": "gelu", "random_state": 0, **SETTINGS[optimizer]}
    return DifferentialRegressor(**{**fixed, **more}, checkpoint=folder)


def interrupted(fitting, at, *, data=(X, Y, DYDX), error=None, **more):
    """Fit until the at-th evaluation of the loss; the same model again is `model(...)`."""
    with pytest.MonkeyPatch.context() as patch:
        Interrupt(at, error).install(patch)
        with pytest.warns(PullbackWarning, match="interrupted after epoch"):
            fitting.fit(*data, **more)
    return fitting


def same_bits(one, two):
    first, second = (m.predict(X, return_gradient=True) for m in (one, two))
    return all(map(np.array_equal, first, second))


class TestResume:
    @pytest.mark.parametrize("optimizer", SETTINGS)
    @pytest.mark.parametrize("at", [45, 60, 77])
    def test_in_the_middle_of_an_epoch(self, tmp_path, optimizer, at):
        whole = model(optimizer=optimizer).fit(X, Y, DYDX)
        broken = interrupted(model(tmp_path / "c", optimizer), at)
        resumed = model(tmp_path / "c", optimizer).fit(X, Y, DYDX)

        assert same_bits(resumed, whole)
        assert not same_bits(broken, whole)
        assert resumed.history_.train == whole.history_.train
        assert resumed.history_.epochs == whole.history_.epochs
        assert not resumed.history_.interrupted
        assert any(e.startswith("resumed after epoch") for e in resumed.history_.events)

    def test_interrupted_twice(self, tmp_path):
        whole = model().fit(X, Y, DYDX)
        interrupted(model(tmp_path / "c"), 30)
        interrupted(model(tmp_path / "c"), 30)

        assert same_bits(model(tmp_path / "c").fit(X, Y, DYDX), whole)

    @pytest.mark.parametrize("optimizer", SETTINGS)
    def test_with_held_out_rows_and_the_best_weights_so_far(self, tmp_path, optimizer):
        more = {"validation_data": FRESH}
        whole = model(optimizer=optimizer).fit(X, Y, DYDX, **more)
        interrupted(model(tmp_path / "c", optimizer), 50, **more)
        resumed = model(tmp_path / "c", optimizer).fit(X, Y, DYDX, **more)

        assert same_bits(resumed, whole)
        assert resumed.history_.best_epoch == whole.history_.best_epoch
        assert resumed.history_.validation == whole.history_.validation

    def test_several_outputs_and_weights(self, tmp_path):
        data = two_fields()
        more = {"sample_weight": np.linspace(0.5, 2, 60), "dydx_weight": np.ones((2, 1))}
        whole = model().fit(*data, **more)
        interrupted(model(tmp_path / "c"), 31, data=data, **more)

        assert same_bits(model(tmp_path / "c").fit(*data, **more), whole)

    @pytest.mark.parametrize("optimizer", SETTINGS)
    def test_after_a_crash_from_the_last_one_written(self, tmp_path, monkeypatch, optimizer):
        """Not Ctrl-C: nothing is written at the end, only what was due before."""
        monkeypatch.setattr("pullback.learning.fit.Checkpoint.every", 0.0)
        whole = model(optimizer=optimizer).fit(X, Y, DYDX)
        with pytest.MonkeyPatch.context() as patch:
            Interrupt(60, RuntimeError("power cut")).install(patch)
            with pytest.raises(RuntimeError, match="power cut"):
                model(tmp_path / "c", optimizer).fit(X, Y, DYDX)

        assert same_bits(model(tmp_path / "c", optimizer).fit(X, Y, DYDX), whole)

    @pytest.mark.parametrize("activation", ["tanh", "softplus", "gelu"])
    def test_between_two_epochs_compiled_or_not(self, tmp_path, monkeypatch, activation):
        """A small network may train in compiled code, which Ctrl-C reaches between epochs."""
        whole = model(activation=activation).fit(X, Y, DYDX)
        record = History.record

        def record_and_stop(history, epoch, *more):
            record(history, epoch, *more)
            if epoch == 11:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(History, "record", record_and_stop)
            with pytest.warns(PullbackWarning, match="after epoch 11"):
                model(tmp_path / "c", activation=activation).fit(X, Y, DYDX)
        resumed = model(tmp_path / "c", activation=activation).fit(X, Y, DYDX)

        assert same_bits(resumed, whole)
        assert resumed.history_.train == whole.history_.train

    def test_in_the_first_epoch_starts_again(self, tmp_path):
        whole = model().fit(X, Y, DYDX)
        interrupted(model(tmp_path / "c"), 2)

        assert same_bits(model(tmp_path / "c").fit(X, Y, DYDX), whole)


class TestFinished:
    @pytest.mark.parametrize("optimizer", SETTINGS)
    def test_a_finished_run_is_not_run_again(self, tmp_path, optimizer, monkeypatch):
        first = model(tmp_path / "c", optimizer).fit(X, Y, DYDX)
        Interrupt(1, AssertionError("trained again")).install(monkeypatch)

        assert same_bits(model(tmp_path / "c", optimizer).fit(X, Y, DYDX), first)

    def test_nor_one_that_stopped_early(self, tmp_path, monkeypatch):
        settings = {"early_stopping": True, "patience": 3, "epochs": 900, "check_labels": False}
        noisy = Y + np.random.default_rng(0).normal(size=60)
        first = model(tmp_path / "c", **settings).fit(X, noisy, DYDX)
        Interrupt(1, AssertionError("trained again")).install(monkeypatch)
        again = model(tmp_path / "c", **settings).fit(X, noisy, DYDX)

        assert same_bits(again, first)
        assert sum("stopped early" in event for event in again.history_.events) == 1

    def test_restarts_have_folders_of_their_own(self, tmp_path):
        settings = {
            "hidden": (20, 20), "activation": "sigmoid", "learning_rate": 10.0, "epochs": 10,
            "batch_size": 20, "restarts": 12,
        }  # fmt: skip
        with pytest.warns(CollapseWarning):
            first = model(tmp_path / "c", **settings).fit(X, Y, DYDX)
        names = sorted(path.name for path in tmp_path.iterdir())
        with pytest.warns(CollapseWarning):
            again = model(tmp_path / "c", **settings).fit(X, Y, DYDX)

        assert names[:2] == ["c", "c-1"]
        assert same_bits(again, first)


OTHERS = {
    "network": {"hidden": (7,)},
    "activation": {"activation": "tanh"},
    "omega_0": {"omega_0": 2.0},
    "seed": {"random_state": 1},
    "rate": {"learning_rate": 0.01},
    "epochs": {"epochs": 26},
    "batch": {"batch_size": 15},
    "decay": {"weight_decay": 0.1},
    "derivative weight": {"derivative_weight": 0.5},
    "precision": {"dtype": "float64"},
}


class TestRefused:
    @pytest.mark.parametrize("other", OTHERS)
    def test_other_settings(self, tmp_path, other):
        interrupted(model(tmp_path / "c"), 30)

        with pytest.raises(ModelFileError, match="belongs to a run with other data or hyper-param"):
            model(tmp_path / "c", **OTHERS[other]).fit(X, Y, DYDX)

    @pytest.mark.parametrize("which", ["x", "y", "dydx", "weight", "validation"])
    def test_other_data(self, tmp_path, which):
        parts, more = dict(zip(("x", "y", "dydx"), (X, Y, DYDX), strict=True)), {}
        interrupted(model(tmp_path / "c"), 30)
        if which in parts:
            parts[which] = parts[which].copy()
            parts[which].flat[0] += 1e-3
        if which == "weight":
            more["sample_weight"] = np.linspace(1, 2, 60)
        if which == "validation":
            more["validation_data"] = FRESH

        with pytest.raises(ModelFileError, match="Remove the folder, or name another"):
            model(tmp_path / "c").fit(*parts.values(), **more)

    def test_other_progress_is_no_other_run(self, tmp_path):
        interrupted(model(tmp_path / "c"), 30)

        assert model(tmp_path / "c", progress=False).fit(X, Y, DYDX).history_.epochs[-1] == 25

    def test_a_run_without_a_seed(self, tmp_path):
        with pytest.raises(InputError, match="checkpoint: expected a random_state with it"):
            model(tmp_path / "c", random_state=None).fit(X, Y, DYDX)

    @pytest.mark.parametrize("part", [CONFIG, WEIGHTS])
    def test_a_damaged_one(self, tmp_path, part):
        interrupted(model(tmp_path / "c"), 30)
        whole = (tmp_path / "c" / part).read_bytes()
        (tmp_path / "c" / part).write_bytes(whole[: len(whole) // 2])

        with pytest.raises(ModelFileError, match=f"{part} is truncated or corrupt"):
            model(tmp_path / "c").fit(X, Y, DYDX)

    def test_a_saved_model(self, tmp_path):
        model().fit(X, Y, DYDX).save(tmp_path / "c")

        with pytest.raises(ModelFileError, match="expected a checkpoint, found 'pullback model'"):
            model(tmp_path / "c").fit(X, Y, DYDX)

    def test_a_newer_one(self, tmp_path):
        interrupted(model(tmp_path / "c"), 30)
        config = json.loads((tmp_path / "c" / CONFIG).read_text())
        (tmp_path / "c" / CONFIG).write_text(json.dumps({**config, "format": 99}))

        with pytest.raises(ModelFileError, match=r"format 99.*Update pullback"):
            model(tmp_path / "c").fit(X, Y, DYDX)


def test_the_comparison_sees_a_run_that_went_another_way():
    runs = [model(random_state=seed).fit(X, Y, DYDX) for seed in (0, 1)]
    runs.append(model(epochs=24).fit(X, Y, DYDX))

    assert not any(same_bits(one, two) for one, two in itertools.combinations(runs, 2))
