"""How the doctor behaves: it holds nothing, restores everything, nests, and never interferes."""

import gc
import json
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

from pullback.doctor import Findings, doctor
from pullback.errors import GraphFaultError, InputError

LEVELS = ["light", "full"]


def _patched():
    return (
        torch.autograd._engine_run_backward,
        nn.Module.train,
        torch.compile,
        torch._C._len_torch_function_stack(),
        len(_global_optimizer_post_hooks),
    )


def _carry(passes=2):
    w = torch.ones(3, requires_grad=True)
    h = torch.ones(3)
    for _ in range(passes):
        h = torch.tanh(w * h)
        h.sum().backward()


@pytest.mark.parametrize("level", LEVELS)
def test_no_tensor_outlives_its_pass(level):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    seen = []

    def one_pass():
        hidden = net[1](net[0](torch.randn(5, 3)))
        loss = net[2](hidden).pow(2).mean()
        seen.append((weakref.ref(hidden), weakref.ref(loss)))
        loss.backward()

    gc.collect()
    gc.disable()  # what a cycle would hide must show
    try:
        with doctor(level=level):
            for _ in range(8):
                one_pass()
                assert all(ref() is None for pair in seen for ref in pair)
    finally:
        gc.enable()


@pytest.mark.parametrize("level", LEVELS)
def test_locals_of_a_running_function_are_not_held(level):
    w = torch.ones(3, requires_grad=True)
    with doctor(level=level):
        loss = w.exp().sum()
        ref = weakref.ref(loss)
        loss.backward()
        del loss
        assert ref() is None


@pytest.mark.parametrize("level", LEVELS)
def test_everything_patched_is_given_back(level):
    before = _patched()
    with doctor(level=level):
        assert _patched() != before
    assert _patched() == before


@pytest.mark.parametrize("level", LEVELS)
def test_everything_is_given_back_after_an_exception(level):
    before = _patched()
    with pytest.raises(KeyError), doctor(level=level):
        raise KeyError("mine")
    assert _patched() == before
    with pytest.raises(RuntimeError, match="second time"), doctor(level=level):
        _carry()
    assert _patched() == before


def test_nested_doctors_both_see():
    with doctor() as outer:
        with pytest.raises(RuntimeError), doctor(level="light") as inner:
            _carry()
        assert inner[0].rule == "carried-state"
    assert outer[0].rule == "carried-state"


def test_one_doctor_can_be_used_twice():
    watch = doctor()
    for _ in range(2):
        with pytest.raises(RuntimeError), watch:
            _carry()
    assert [f.rule for f in watch.findings.at_least("error")] == ["carried-state"]


def test_errors_in_threads_are_diagnosed():
    raised = []

    def work():
        try:
            _carry()
        except RuntimeError as error:
            raised.append(error)

    with doctor() as findings:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(raised) == 3
    assert all("carried-state" in error.__notes__[0] for error in raised)
    assert findings[0].path == "h"


def test_doctors_of_two_threads_do_not_disturb_each_other():
    before = _patched()
    results = {}

    def work(name):
        with doctor() as findings:
            try:
                _carry()
            except RuntimeError:
                results[name] = findings

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _patched() == before
    assert all(found[0].rule == "carried-state" for found in results.values())
    assert len(results) == 2


@pytest.mark.parametrize("level", LEVELS)
def test_gradients_and_random_numbers_are_the_same_with_and_without(level):
    def train():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for _ in range(6):
            x = torch.randn(5, 3, requires_grad=True)
            y = net(x)
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            optimizer.zero_grad()
            (y.pow(2).mean() + (g - 1).pow(2).mean()).backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()], torch.rand(3)

    plain, after = train()
    with doctor(level=level):
        watched, after_watched = train()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert torch.equal(after, after_watched)


def test_a_doctor_that_fails_leaves_training_alone(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("inside the doctor")

    monkeypatch.setattr("pullback.doctor.recorder.walk", broken)
    w = torch.ones(3, requires_grad=True)
    with doctor() as findings:
        w.exp().sum().backward()
        w.exp().sum().backward()
    assert torch.allclose(w.grad, 2 * torch.ones(3).exp())
    assert [f.rule for f in findings] == ["blind-doctor"]
    assert "ZeroDivisionError: inside the doctor" in findings[0].what


def test_a_diagnosis_that_fails_leaves_torchs_error_alone(monkeypatch):
    monkeypatch.setattr("pullback.doctor.recorder.diagnose_failure", lambda *_, **__: 1 / 0)
    with pytest.raises(RuntimeError, match="second time"), doctor() as findings:
        _carry()
    assert "ZeroDivisionError" in findings[0].what


def test_missing_torch_features_are_said(monkeypatch):
    monkeypatch.setattr(
        "pullback.doctor._torch.missing_features", lambda: ("torch changed: nothing is seen",)
    )
    with doctor() as findings:
        pass
    assert "torch changed: nothing is seen" in findings[0].what


def test_torchs_error_keeps_type_and_text():
    with pytest.raises(RuntimeError) as plain:
        _carry()
    with pytest.raises(RuntimeError) as watched, doctor():
        _carry()
    assert type(plain.value) is type(watched.value)
    assert str(plain.value) == str(watched.value)


def test_a_fault_that_starts_late_is_found():
    w = torch.ones(3, requires_grad=True)

    def train(h):
        for step in range(12):
            h = torch.tanh(w * (h if step > 8 else h.detach()))
            h.sum().backward()

    with pytest.raises(RuntimeError, match="second time"), doctor() as findings:
        train(torch.ones(3))
    assert findings[0].rule == "carried-state"
    assert findings[0].path == "h"
    assert findings[0].numbers["pass"] == 9


def test_raise_on():
    w = torch.ones(3, requires_grad=True)

    def train():
        for _ in range(3):
            (w.pow(2).sum() + w.exp().sum().detach()).backward()

    watch = doctor(raise_on="warning")
    with pytest.raises(GraphFaultError, match=r"1 finding\(s\)\n.*dead-term"), watch:
        train()


def test_raise_on_leaves_the_blocks_own_exception_alone():
    with pytest.raises(RuntimeError, match="second time"), doctor(raise_on="error"):
        _carry()


def test_bad_arguments():
    with pytest.raises(InputError, match="level must be 'light' or 'full'"):
        doctor(level="heavy")
    with pytest.raises(InputError, match="raise_on must be one of"):
        doctor(raise_on="fatal")


def test_findings_as_json_text_and_html():
    with pytest.raises(RuntimeError), doctor() as findings:
        _carry()
    (first, *_) = json.loads(findings.to_json())
    assert first["rule"] == "carried-state"
    assert first["path"] == "h"
    text = str(findings)
    for label in ("what:", "made:", "freed by:", "used:", "fix:", "not:"):
        assert label in text
    html = findings._repr_html_()
    assert "carried-state" in html
    assert str(Findings()) == "pullback doctor: nothing found"
    assert "nothing found" in Findings()._repr_html_()


def test_html_escapes_what_comes_from_the_source():
    from pullback.doctor import Finding

    findings = Findings()
    findings.add(Finding("carried-state", "error", "<script>x</script>"))
    assert "<script>" not in findings._repr_html_()


def test_partial_gradients_are_counted():
    v = torch.ones(3, requires_grad=True)
    w = torch.ones(3, requires_grad=True)

    def train(h):
        for _ in range(2):
            h = torch.tanh(w * h)
            (h.sum() + v.exp().sum()).backward()

    with pytest.raises(RuntimeError, match="second time"), doctor() as findings:
        train(torch.ones(3))
    (partial,) = [f for f in findings if f.rule == "partial-gradients"]
    assert partial.numbers["tensors"] == 2


def test_memory_of_the_record_is_bounded():
    w = torch.ones(3, requires_grad=True)
    watch = doctor(level="full")
    with watch:
        for _ in range(600):
            w.exp().sum().backward()
        (recorder,) = watch._recorders
        assert len(recorder.record.backwards) <= 256
        assert len(recorder.record.turns) <= 8
        assert len(recorder._sites) < 20


def test_saved_tensor_hooks_are_not_run_by_looking():
    calls = []
    w = torch.ones(3, requires_grad=True)

    def unpack(tensor):
        calls.append(1)
        return tensor

    with (
        doctor(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack),
    ):
        for _ in range(3):
            w.exp().sum().backward()
    assert len(calls) == 3


def test_a_late_fault_is_told_at_the_light_level_too():
    w = torch.ones(3, requires_grad=True)

    class State:
        pass

    state = State()
    state.h = torch.ones(3)

    def train():
        for step in range(12):
            state.h = torch.tanh(w * (state.h if step > 8 else state.h.detach()))
            state.h.sum().backward()

    with pytest.raises(RuntimeError, match="second time"), doctor(level="light") as findings:
        train()
    assert findings[0].rule == "carried-state"
    assert findings[0].numbers["pass"] == 9
    assert "pass 8" in findings[0].freed


def test_the_doctor_imports_only_errors_of_this_package():
    import ast
    from pathlib import Path

    import pullback.doctor

    for file in Path(pullback.doctor.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                if name.startswith("pullback"):
                    assert name.startswith(
                        ("pullback.doctor", "pullback.errors", "pullback._lazy")
                    ), (file, name)
