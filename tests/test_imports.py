"""The house's rules that a reader of the source relies on, checked on the source itself."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pullback

SOURCE = Path(pullback.__file__).parent
ROOT = SOURCE.parent.parent
FILES = sorted(SOURCE.rglob("*.py"))

# What an area may import besides itself; the door may import all.
BASE = {"errors", "_state", "_extras", "_lazy", "_torch"}
LEVELS = [
    BASE,
    {"derivatives"},
    {"inference", "learning"},
    {"pathwise"},
    {"tables"},
    {"reports"},
    {"cli"},
]
ALLOWED = {
    area: set().union(*LEVELS[:level]) | (BASE if level == 0 else set())
    for level, areas in enumerate(LEVELS)
    for area in areas
}
ALLOWED["doctor"] = {"errors", "_lazy"}
ALLOWED["cli"] |= {"doctor"}


def area_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_areas(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and first part after `pullback.` of each import, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "pullback":
                    yield node.lineno, [*name.name.split("."), "__init__"][1]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the direction"
            parts = (node.module or "").split(".")
            if parts[0] == "pullback" and len(parts) > 1:
                yield node.lineno, parts[1]
            elif parts[0] == "pullback":
                for name in node.names:
                    known = name.name in ALLOWED
                    yield node.lineno, name.name if known else f"__init__.{name.name}"


def wrong_imports(area: str, text: str) -> list[str]:
    """Imports that do not point down; of the door, only the version."""
    allowed = ALLOWED[area] | {area, "__init__.__version__"}
    return [
        f"line {line} imports {other}"
        for line, other in imported_areas(ast.parse(text))
        if other not in allowed
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    if path == SOURCE / "__init__.py":
        return
    assert area_of(path) in ALLOWED, "a new area: say above what it may import"
    assert not wrong_imports(area_of(path), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("area", "text"),
    [
        ("derivatives", "from pullback.learning import MLP"),
        ("derivatives", "import pullback.learning.loss"),
        ("learning", "def late():\n    from pullback.pathwise.markets import bachelier"),
        ("learning", "from pullback.inference import infer"),
        ("learning", "from pullback import MLP"),
        ("learning", "import pullback"),
        ("errors", "from pullback.derivatives import value_and_gradient"),
        ("pathwise", "from pullback.reports import html"),
        ("doctor", "from pullback._state import kept_rng"),
        ("reports", "from pullback.cli import main"),
    ],
)
def test_the_direction_test_sees_what_points_up(area, text):
    assert wrong_imports(area, text)


@pytest.mark.parametrize(
    ("area", "text"),
    [
        ("learning", "from pullback.derivatives import value_and_jacobian"),
        ("learning", "from pullback.learning.loss import DifferentialLoss\nimport torch"),
        ("cli", "from pullback import __version__, errors\nfrom pullback.learning import MLP"),
        ("doctor", "from pullback.errors import PullbackError"),
    ],
)
def test_and_passes_what_points_down(area, text):
    assert not wrong_imports(area, text)


def calls(tree: ast.AST) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def modules(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_printing_no_pickle_no_long_module(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)

    assert len(text.splitlines()) <= 500
    assert not {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"} & modules(tree)
    assert not {"eval", "exec"} & calls(tree)
    assert "torch.load(" not in text
    assert area_of(path) == "cli" or "print" not in calls(tree)
    assert path.name not in ("utils.py", "helpers.py", "misc.py")
    assert ast.get_docstring(tree), "a module says what it is for"


def test_those_would_be_seen():
    assert "print" in calls(ast.parse("def f():\n    print(1)"))
    assert "pickle" in modules(ast.parse("def f():\n    from pickle import loads"))


def test_every_note_that_is_pointed_at_exists():
    texts = [
        path.read_text(encoding="utf-8")
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".cpp")
    ]
    titles = {title for text in texts for title in re.findall(r"^NOTE \[([^]]+)\]$", text, re.M)}
    cited = {
        " ".join(title.split()) for text in texts for title in re.findall(r"NOTE \[([^]]+)\]", text)
    }

    assert len(titles) >= 8
    assert cited == titles


def test_private_torch_calls_live_in_one_file():
    private = re.compile(r"\btorch\._[a-zA-Z]\w*")
    found = {
        f"{path.relative_to(SOURCE)}: {match}"
        for path in FILES
        if path.name != "_torch.py"
        for match in private.findall(path.read_text(encoding="utf-8"))
    }

    assert not found


def test_the_drawn_tree_of_errors_is_the_real_one():
    from pullback import errors

    drawn = re.findall(r"([A-Z]\w+(?:Error|Warning))(?: \(\w+\))? *", errors.__doc__ or "")
    real = {
        name: thing
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and thing.__module__ == errors.__name__
    }

    assert set(real) <= set(drawn)
    for name, thing in real.items():
        assert thing.__doc__, name
        assert issubclass(thing, errors.PullbackError | errors.PullbackWarning), name


def test_dependencies_are_those_that_were_agreed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=\[]", line)[0] for line in project["dependencies"]}

    assert names == {"torch", "numpy", "safetensors", "scikit-learn", "click", "rich"}
    assert {"plot", "parquet", "frames", "all"} <= set(project["optional-dependencies"])
    assert project["version"] == pullback.__version__
