"""Saved models: the same bits back, nothing executed, and words for every damage."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from tests.learning.problems import field, two_fields
from torch import nn

from pullback import Columns, DifferentialRegressor
from pullback.errors import InputError, ModelFileError
from pullback.learning import tensor_tree
from pullback.learning.tensor_tree import CONFIG, WEIGHTS

X, Y, DYDX = field()


def model(**more):
    return DifferentialRegressor(
        **{"hidden": (6, 5), "activation": "silu", "epochs": 20, "random_state": 0, **more}
    )


def everything(fitted, x=X):
    return [*fitted.predict(x, return_gradient=True), fitted.predict_hessian(x)]


def same_bits(one, two, x=X):
    return all(
        np.array_equal(a, b) for a, b in zip(everything(one, x), everything(two, x), strict=True)
    )


FITTED = {
    "float64": lambda: model(optimizer="lbfgs").fit(X, Y, DYDX),
    "float32": lambda: model(optimizer="adam").fit(X, Y, DYDX),
    "two outputs": lambda: model(omega_0=2.0, activation="sin").fit(*two_fields()),
    "no derivatives": lambda: model().fit(X, Y),
    "linear": lambda: model(hidden=()).fit(X, Y, DYDX),
    "numpy's numbers": lambda: model(
        hidden=np.array([4, 4]), epochs=np.int64(9), learning_rate=np.float32(0.1)
    ).fit(X, Y, DYDX),
    "a module for an activation": lambda: model(activation=nn.SiLU()).fit(X, Y, DYDX),
    "a constant input": lambda: model().fit(np.column_stack([X[:, 0], np.ones(60)]), Y),
    "by name": lambda: model().fit(X, Y, DYDX, columns=Columns(("a", "b"), ("c",), {"a": "m"})),
    "with held-out rows": lambda: model(early_stopping=True).fit(X, Y, DYDX),
}


class TestRoundTrip:
    @pytest.mark.parametrize("kind", FITTED)
    def test_bit_for_bit(self, kind, tmp_path):
        fitted = FITTED[kind]()
        again = DifferentialRegressor.load(fitted.save(tmp_path / "m"))

        assert same_bits(fitted, again)
        assert again.columns_ == fitted.columns_
        assert again.history_ == fitted.history_
        assert again.n_features_in_ == 2
        assert np.array_equal(again.domain_.outside(5 * X), fitted.domain_.outside(5 * X))
        assert torch.equal(torch.as_tensor(again.predict(X)), again.predict(torch.tensor(X)))

    def test_in_another_process(self, tmp_path):
        fitted = model().fit(X, Y, DYDX)
        fitted.save(tmp_path / "m")
        script = (
            "import sys, numpy as np\nfrom pullback import DifferentialRegressor\n"
            "m = DifferentialRegressor.load(sys.argv[1])\n"
            "np.save(sys.argv[2], m.predict_gradient(np.load(sys.argv[3])))\n"
        )
        np.save(tmp_path / "x.npy", X)
        files = [str(tmp_path / name) for name in ("m", "out.npy", "x.npy")]
        subprocess.run([sys.executable, "-c", script, *files], check=True)

        assert np.array_equal(np.load(tmp_path / "out.npy"), fitted.predict_gradient(X))

    def test_saved_again_it_is_the_same_file(self, tmp_path):
        first = model().fit(X, Y, DYDX).save(tmp_path / "a")
        second = DifferentialRegressor.load(first).save(tmp_path / "b")

        assert (first / WEIGHTS).read_bytes() == (second / WEIGHTS).read_bytes()

    def test_it_can_be_fitted_again(self, tmp_path):
        again = DifferentialRegressor.load(model().fit(X, Y, DYDX).save(tmp_path / "m"))

        assert np.isfinite(again.set_params(epochs=3).fit(X, Y, DYDX).predict(X)).all()
        assert again.get_params()["activation"] == "silu"

    def test_names_of_frames_are_checked_after_loading(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=["spot", "vol"])
        again = DifferentialRegressor.load(model().fit(frame, Y, DYDX).save(tmp_path / "m"))

        with pytest.raises(ValueError, match="feature names"):
            again.predict(frame[["vol", "spot"]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, x):
        return self.parts(x)


class TestModules:
    def test_needs_one_of_the_same_architecture(self, tmp_path):
        fitted = model(module=Net()).fit(X, Y, DYDX)
        fitted.save(tmp_path / "m")
        given = Net()
        before = copy.deepcopy(given.state_dict())
        again = DifferentialRegressor.load(tmp_path / "m", module=given)

        assert same_bits(fitted, again)
        assert all(torch.equal(before[k], v) for k, v in given.state_dict().items())
        assert {p.dtype for p in given.parameters()} == {torch.float32}

    def test_without_one_it_says_which(self, tmp_path):
        model(module=Net()).fit(X, Y, DYDX).save(tmp_path / "m")

        with pytest.raises(
            ModelFileError, match=r"was fitted with .*\.Net; pass one: load\(folder"
        ):
            DifferentialRegressor.load(tmp_path / "m")
        with pytest.raises(ModelFileError, match="do not fit together"):
            DifferentialRegressor.load(tmp_path / "m", module=nn.Linear(2, 1))

    @pytest.mark.parametrize("activation", [torch.tanh, lambda z: z.sin()])
    def test_a_callable_activation_cannot_be_named(self, tmp_path, activation):
        fitted = model(activation=activation).fit(X, Y, DYDX)

        with pytest.raises(InputError, match="is a callable, which a file can't name"):
            fitted.save(tmp_path / "m")
        assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return model().fit(X, Y, DYDX).save(tmp_path_factory.mktemp("saved") / "m")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that may be damaged."""
    copied = tmp_path / "m"
    copied.mkdir()
    for part in saved.iterdir():
        (copied / part.name).write_bytes(part.read_bytes())
    return copied


def change(folder, **fields):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **fields}))


NETWORK = {
    "type": "MLP", "inputs": 2, "outputs": 1, "hidden": [6, 5], "activation": "silu", "omega_0": 1.0
}  # fmt: skip
DAMAGE = {
    "other widths": {"network": {**NETWORK, "hidden": [6, 6]}},
    "impossible widths": {"network": {**NETWORK, "hidden": [0]}},
    "unknown activation": {"network": {**NETWORK, "activation": "exec"}},
    "no activation": {"network": {k: v for k, v in NETWORK.items() if k != "activation"}},
    "surplus field": {"network": {**NETWORK, "surprise": 1}},
    "no network": {"network": None},
    "unknown dtype": {"dtype": "float31"},
    "dtype of another kind": {"dtype": "load"},
    "parameters from elsewhere": {"parameters": {"hidden": [6], "alpha": 3}},
    "columns": {"columns": {"inputs": ["a", "a"], "outputs": ["y"], "units": {}}},
    "history": {"history": {"surprise": 1}},
    "nothing else": {"parameters": None},
}


class TestDamage:
    @pytest.mark.parametrize("case", DAMAGE)
    def test_parts_that_do_not_fit(self, folder, case):
        change(folder, **DAMAGE[case])

        with pytest.raises(ModelFileError, match=f"^{folder}: "):
            DifferentialRegressor.load(folder)

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
    @pytest.mark.parametrize("part", [CONFIG, WEIGHTS])
    def test_truncated_anywhere(self, folder, part, share):
        whole = (folder / part).read_bytes()
        (folder / part).write_bytes(whole[: int(share * len(whole))])

        with pytest.raises(ModelFileError, match=f"{part} is truncated or corrupt"):
            DifferentialRegressor.load(folder)

    def test_missing_newer_and_foreign(self, folder, tmp_path):
        change(folder, format=99, pullback="7.0")
        with pytest.raises(ModelFileError, match=r"format 99 by pullback 7\.0.*Update pullback"):
            DifferentialRegressor.load(folder)
        change(folder, format=1, kind="checkpoint")
        with pytest.raises(ModelFileError, match="expected a pullback model, found 'checkpoint'"):
            DifferentialRegressor.load(folder)
        with pytest.raises(ModelFileError, match="expected a folder with config"):
            DifferentialRegressor.load(tmp_path / "nowhere")

    def test_the_undamaged_one_loads(self, folder):
        assert isinstance(DifferentialRegressor.load(folder), DifferentialRegressor)


class TestWriting:
    def test_a_failure_leaves_the_old_model_whole(self, folder, monkeypatch):
        old = DifferentialRegressor.load(folder)

        def full(*_):
            raise OSError("disk full")

        monkeypatch.setattr(tensor_tree, "save_file", full)
        with pytest.raises(OSError, match="disk full"):
            model(random_state=1).fit(X, Y, DYDX).save(folder)

        assert same_bits(DifferentialRegressor.load(folder), old)
        assert [path.name for path in folder.parent.iterdir()] == ["m"]

    def test_a_folder_of_someone_else_is_kept(self, folder):
        (folder / "notes.txt").write_text("mine")

        with pytest.raises(ModelFileError, match=r"holds notes\.txt"):
            model().fit(X, Y, DYDX).save(folder)
        assert (folder / "notes.txt").read_text() == "mine"

    def test_parents_are_made(self, tmp_path):
        assert model().fit(X, Y, DYDX).save(tmp_path / "a" / "b").is_dir()

    def test_what_is_not_fitted_is_not_saved(self, tmp_path):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            model().save(tmp_path / "m")

    def test_nothing_in_a_model_is_code(self, saved):
        assert sorted(path.name for path in saved.iterdir()) == [CONFIG, WEIGHTS]
        text = json.loads((saved / CONFIG).read_text())
        header = int.from_bytes((saved / WEIGHTS).read_bytes()[:8], "little")

        assert {"torch", "numpy", "python"} <= set(text["versions"])
        assert header < 10_000  # safetensors: a length, a JSON header, numbers
