"""Folders of state: every tree comes back bit for bit, and every damaged folder says so."""

import json
import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from pullback.errors import ModelFileError
from pullback.learning import tensor_tree
from pullback.learning.tensor_tree import (
    CONFIG,
    WEIGHTS,
    flatten,
    read_folder,
    unflatten,
    write_folder,
)

HEAD = {"kind": "thing", "format": 1}
TREE = {"a": [torch.arange(3), (1.5, None)], 7: {"b": True}, "empty": {}}

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.builds(lambda n: torch.arange(n, dtype=torch.float64) / 3, st.integers(0, 4))
)
TREES = st.recursive(
    LEAVES,
    lambda node: (
        st.lists(node, max_size=3)
        | st.tuples(node, node)
        | st.dictionaries(st.text() | st.integers(), node, max_size=3)
    ),
    max_leaves=12,
)


def same(one, two):
    """Equal in type, structure and every bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


@given(TREES)
@settings(max_examples=100, deadline=None)
def test_a_tree_comes_back(tree):
    structure, tensors = flatten(tree)

    assert same(unflatten(json.loads(json.dumps(structure)), tensors), tree)


def test_the_comparison_sees_what_differs():
    assert not same((1,), [1])
    assert not same({"a": torch.ones(1)}, {"a": torch.ones(1).double()})
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})


def test_a_folder_comes_back(tmp_path):
    config, tree = read_folder(write_folder(tmp_path / "m", HEAD, TREE), kind="thing", version=1)

    assert config == HEAD
    assert same(tree, TREE)
    assert sorted(os.listdir(tmp_path)) == ["m"]
    assert sorted(os.listdir(tmp_path / "m")) == [CONFIG, WEIGHTS]


def test_odd_tensors_come_back(tmp_path):
    shared = torch.randn(6)
    tree = {
        "shared": [shared, shared[2:]],
        "strided": torch.randn(3, 4).T,
        "nan": torch.tensor([float("nan"), float("inf")]),
        "none of it": torch.empty(0, 3),
        "number": torch.tensor(2.5, dtype=torch.bfloat16),
        "graph": torch.ones(2, requires_grad=True),
    }
    again = read_folder(write_folder(tmp_path / "m", HEAD, tree), kind="thing", version=1)[1]

    assert torch.equal(again["shared"][1], shared[2:])
    assert torch.equal(again["strided"], tree["strided"])
    assert torch.equal(again["nan"], tree["nan"]) or again["nan"][0].isnan()
    assert again["none of it"].shape == (0, 3)
    assert same(again["number"], tree["number"])
    assert not again["graph"].requires_grad


def test_what_cannot_be_stored_is_named(tmp_path):
    with pytest.raises(TypeError, match="cannot be stored: set"):
        write_folder(tmp_path / "m", HEAD, {"a": {1, 2}})
    with pytest.raises(TypeError, match=r"cannot be stored: \w*Path"):
        write_folder(tmp_path / "m", {**HEAD, "where": Path(".")}, {})

    assert not list(tmp_path.iterdir())


def cut_weights(folder):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def rewrite(**changes):
    def damage(folder):
        config = {**json.loads((folder / CONFIG).read_text()), **changes}
        (folder / CONFIG).write_text(json.dumps(config))

    return damage


DAMAGE = {
    "no config": (lambda f: (f / CONFIG).unlink(), "expected a folder with config.json and"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "model.safetensors is missing"),
    "weights cut": (cut_weights, "model.safetensors is truncated or corrupt"),
    "weights empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "truncated or corrupt"),
    "weights of noise": (lambda f: (f / WEIGHTS).write_bytes(bytes(range(99))), "truncated or"),
    "config cut": (
        lambda f: (f / CONFIG).write_text((f / CONFIG).read_text()[:40]),
        "config.json is truncated or corrupt",
    ),
    "config not text": (lambda f: (f / CONFIG).write_bytes(b"\xff\xfe{"), "truncated or corrupt"),
    "config a list": (lambda f: (f / CONFIG).write_text("[]"), "not a JSON object"),
    "another kind": (rewrite(kind="else"), "expected a thing, found 'else'"),
    "no kind": (rewrite(kind=None), "expected a thing, found None"),
    "newer": (rewrite(format=2, pullback="9.1"), r"format 2 by pullback 9\.1.*Update pullback"),
    "format in words": (rewrite(format="two"), "it names no format"),
    "state of nonsense": (rewrite(state={"a": 1, "b": 2}), "truncated or corrupt"),
    "state names no tensor": (rewrite(state={"tensor": "99"}), "truncated or corrupt"),
    "state gone": (
        lambda f: (f / CONFIG).write_text(json.dumps(HEAD)),
        "truncated or corrupt",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_says_what_is_wrong(tmp_path, case):
    damage, words = DAMAGE[case]
    folder = write_folder(tmp_path / "m", HEAD, TREE)
    damage(folder)

    with pytest.raises(ModelFileError, match=f"^{folder}: .*{words}"):
        read_folder(folder, kind="thing", version=1)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("x")])
def test_what_is_not_such_a_folder(tmp_path, make):
    make(tmp_path / "m")

    with pytest.raises(ModelFileError, match=r"expected a folder with config\.json and model"):
        read_folder(tmp_path / "m", kind="thing", version=1)


class TestReplacing:
    def test_an_older_one_of_the_same_kind(self, tmp_path):
        write_folder(tmp_path / "m", HEAD, TREE)
        write_folder(tmp_path / "m", HEAD, {"new": 1})

        assert read_folder(tmp_path / "m", kind="thing", version=1)[1] == {"new": 1}
        assert os.listdir(tmp_path) == ["m"]

    def test_an_empty_folder(self, tmp_path):
        (tmp_path / "m").mkdir()
        write_folder(tmp_path / "m", HEAD, TREE)

        assert read_folder(tmp_path / "m", kind="thing", version=1)[0] == HEAD

    @pytest.mark.parametrize(
        ("files", "words"),
        [
            ({"notes.txt": "mine"}, "holds notes.txt"),
            ({CONFIG: '{"model_type": "bert"}', "vocab.txt": "a"}, "holds vocab.txt"),
            ({CONFIG: '{"model_type": "bert"}', WEIGHTS: ""}, "not a saved thing"),
            ({CONFIG: '{"kind": "else"}', WEIGHTS: ""}, "not a saved thing"),
            ({CONFIG: "not json", WEIGHTS: ""}, "corrupt"),
            ({CONFIG: '{"kind": "thing"}', WEIGHTS: "", "notes.txt": "mine"}, "holds notes.txt"),
        ],
    )
    def test_never_what_someone_else_put_there(self, tmp_path, files, words):
        target = tmp_path / "m"
        target.mkdir()
        for name, text in files.items():
            (target / name).write_text(text)

        with pytest.raises(ModelFileError, match=words):
            write_folder(target, HEAD, TREE)
        assert {p.name: p.read_text() for p in target.iterdir()} == files
        assert os.listdir(tmp_path) == ["m"]

    def test_never_a_file(self, tmp_path):
        (tmp_path / "m").write_text("mine")

        with pytest.raises(ModelFileError, match="not a folder; nothing was written"):
            write_folder(tmp_path / "m", HEAD, TREE)
        assert (tmp_path / "m").read_text() == "mine"

    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
    @pytest.mark.parametrize("where", ["save_file", "second rename"])
    def test_a_failure_while_writing_leaves_the_old_one_whole(
        self, tmp_path, monkeypatch, where, error
    ):
        write_folder(tmp_path / "m", HEAD, TREE)
        rename, calls = Path.rename, []

        def fail(*_):
            raise error

        def fail_second(self, target):
            calls.append(target)
            return fail() if len(calls) == 2 else rename(self, target)

        if where == "save_file":
            monkeypatch.setattr(tensor_tree, "save_file", fail)
        else:
            monkeypatch.setattr(Path, "rename", fail_second)
        with pytest.raises(type(error)):
            write_folder(tmp_path / "m", HEAD, {"new": 1})
        monkeypatch.undo()

        assert same(read_folder(tmp_path / "m", kind="thing", version=1)[1], TREE)
        assert os.listdir(tmp_path) == ["m"]
