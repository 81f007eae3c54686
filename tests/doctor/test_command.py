"""`pullback doctor`: the script's output, exit code and exceptions stay; findings are added."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pullback.cli.doctor import command

FAILING = """
import sys
import torch


def step(w, h):
    return torch.tanh(w * h)


print("arguments", sys.argv[1:])
w, h = torch.ones(3, requires_grad=True), torch.ones(3)
for _ in range(2):
    h = step(w, h)
    h.sum().backward()
"""


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def run(*arguments):
    return CliRunner().invoke(command, list(arguments))


def test_a_failing_script_keeps_output_exit_code_and_error(script):
    path = script(FAILING)
    plain = subprocess.run([sys.executable, path, "--epochs", "2"], capture_output=True, text=True)
    result = run(path, "--epochs", "2")
    assert result.exit_code == plain.returncode == 1
    assert result.stdout == plain.stdout
    # Everything that Python prints is there, in its order, before the diagnosis.
    assert result.stderr.startswith(plain.stderr.rstrip("\n").rpartition("\n")[0][:200])
    assert plain.stderr.strip().splitlines()[-1] in result.stderr
    after = result.stderr.partition("Specify retain_graph=True")[2]
    assert "carried-state" in after
    assert "`h`" in after
    assert "train.py:7 in step" in after
    assert result.stderr.count("error: carried-state") == 1
    assert "doctor/gate.py" not in result.stderr


@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('bye')", 1), ("raise SystemExit(0)", 0)],
)
def test_exit_codes_pass_through(script, ending, code):
    result = run(script(f"import sys\nprint('out')\n{ending}\n"))
    assert result.exit_code == code
    assert result.stdout == "out\n"


def test_other_exceptions_are_printed_as_python_does(script):
    path = script("def f():\n    return 1 / 0\n\n\nf()\n")
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True)
    result = run(path)
    assert result.exit_code == 1
    assert result.stderr == plain.stderr


def test_silent_faults_are_reported_at_the_end(script):
    result = run(
        script(
            "import torch\nw = torch.ones(3, requires_grad=True)\n"
            "for _ in range(3):\n    (w.pow(2).sum() + w.exp().sum().detach()).backward()\n"
        )
    )
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "warning: dead-term" in result.stderr


def test_a_clean_script_stays_silent(script):
    result = run(script("import torch\ntorch.ones(3, requires_grad=True).sum().backward()\n"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_modules_of_the_scripts_folder_can_be_imported(script):
    script("VALUE = 5\n", "beside_the_script.py")
    result = run(script("from beside_the_script import VALUE\nprint(VALUE)\n"))
    assert result.stdout == "5\n"


def test_a_module(script, monkeypatch, tmp_path):
    (tmp_path / "package_of_test").mkdir()
    script("", "package_of_test/__init__.py")
    script(FAILING, "package_of_test/train.py")
    monkeypatch.chdir(tmp_path)
    result = run("-m", "package_of_test.train", "--epochs", "2")
    assert result.exit_code == 1
    assert result.stdout == "arguments ['--epochs', '2']\n"
    assert "carried-state" in result.stderr


@pytest.mark.slow
def test_a_pytest_node(script, tmp_path):
    body = FAILING.replace("\nprint", "\n\ndef test_it():\n    print").replace("\nw,", "\n    w,")
    body = body.replace("\nfor", "\n    for").replace("\n    h =", "\n        h =")
    body = body.replace("\n    h.sum", "\n        h.sum")
    path = script(body, "test_training.py")
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from pullback.cli.doctor import command; command()",
            f"{path}::test_it",
            "-q",
            "-p",
            "no:cacheprovider",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 1, result.stderr
    assert "1 failed" in result.stdout
    assert "carried-state" in result.stdout + result.stderr


def test_findings_as_json(script, tmp_path):
    target = tmp_path / "findings.json"
    run("--json", str(target), script(FAILING))
    assert json.loads(target.read_text())[0]["rule"] == "carried-state"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["findings.json", "train.py"]


def test_explain_prints_the_page():
    result = run("--explain", "carried-state")
    assert result.exit_code == 0
    assert result.stdout.startswith("# carried-state\n")


def test_mistakes():
    assert "nothing to run" in run().stderr
    assert run("no_such_file.py").exit_code == 2
    assert "no such script: no_such_file.py" in run("no_such_file.py").stderr
