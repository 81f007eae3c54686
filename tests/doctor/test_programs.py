"""Programs with declared answers: failing, silent, legitimate."""

import pytest

from tests.doctor.cases import diagnose, ends_with, programs, score

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the programs' own warnings are theirs
]


def _ids(program):
    return program.name


@pytest.mark.parametrize("program", programs("first"), ids=_ids)
def test_first_set_names_carrier_cause_fix_and_lines(program):
    findings, error, _ = diagnose(program)
    assert error is not None, "the program was meant to fail"
    assert all(score(program, findings).values()), f"{score(program, findings)}\n{findings}"
    assert str(findings[0]) in error.__notes__


@pytest.mark.parametrize("program", programs("second"), ids=_ids)
def test_second_set_names_carrier_cause_fix_and_lines(program):
    findings, error, _ = diagnose(program)
    assert error is not None, "the program was meant to fail"
    assert all(score(program, findings).values()), f"{score(program, findings)}\n{findings}"


@pytest.mark.parametrize("program", programs("first"), ids=_ids)
def test_light_level_names_the_carrier_too(program):
    findings, _, _ = diagnose(program, "light")
    # What cut a loss off, or wrote into a local of a function that is gone, only lines tell.
    assert score(program, findings)["carrier"], findings


@pytest.mark.parametrize("program", programs("silent"), ids=_ids)
def test_silent_faults_are_found_with_their_line(program):
    findings, error, _ = diagnose(program)
    assert error is None
    hits = [
        f
        for f in findings.at_least("warning")
        if f.rule in program.rules and (not program.carriers or ends_with(f.path, program.carriers))
    ]
    assert hits, findings
    for mark, lines in program.marks.items():
        assert any(line in getattr(f, mark.lower()) for f in hits for line in lines), findings


@pytest.mark.parametrize("program", programs("quiet"), ids=_ids)
def test_legitimate_programs_give_nothing_above_info(program):
    findings, error, _ = diagnose(program)
    assert error is None
    assert not findings.at_least("warning"), findings
    assert not [f for f in findings if f.rule == "blind-doctor"], findings


def test_the_scorer_can_fail():
    program = next(p for p in programs("first") if p.name == "recurrent_state_local")
    findings, _, _ = diagnose(program)
    from dataclasses import replace

    assert not score(replace(program, carriers=("readout",)), findings)["carrier"]
    assert not score(replace(program, rules=("made-once",)), findings)["cause"]
    assert not score(replace(program, fixes=("retain_graph",)), findings)["fix"]
    wrong = {"MADE": {"recurrent_state_local.py:1"}}
    assert not score(replace(program, marks=wrong), findings)["lines"]
