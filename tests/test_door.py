"""The door: the names it offers, and what importing it costs."""

import subprocess
import sys

import pytest

import pullback
import pullback.learning
from pullback._extras import require
from pullback._lazy import lazy
from pullback.errors import MissingExtraError

DOOR = [
    "MLP",
    "Columns",
    "DifferentialData",
    "DifferentialLoss",
    "DifferentialPCA",
    "DifferentialPolynomialRegression",
    "DifferentialRegressor",
    "Inference",
    "Scaling",
    "Twin",
    "check_independent_rows",
    "check_labels",
    "check_twin",
    "doctor",
    "errors",
    "gradient_by_differences",
    "infer",
    "pathwise",
    "random_cotangents",
    "value_and_directional",
    "value_and_gradient",
    "value_and_jacobian",
    "value_and_pullback",
    "value_gradient_and_hvp",
]
HEAVY = [
    "sklearn", "scipy", "matplotlib", "rich", "click", "pandas", "polars", "pyarrow", "narwhals",
    "safetensors", "pytest",
]  # fmt: skip


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


class TestNames:
    def test_the_door_is_as_agreed(self):
        assert pullback.__all__ == DOOR

    @pytest.mark.parametrize("package", [pullback, pullback.learning, pullback.derivatives])
    def test_every_name_is_there_with_words_of_its_own(self, package):
        for name in package.__all__:
            assert getattr(package, name).__doc__, name

    def test_another_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="module 'pullback' has no attribute 'Twins'"):
            pullback.Twins

    def test_lazy_names_come_from_the_module_named(self):
        assert lazy("package", {"root": "math", "sqrt": "math"})("sqrt")(4.0) == 2.0

    def test_a_star_import_brings_all_of_them(self):
        scope: dict[str, object] = {}
        exec("from pullback import *", scope)

        assert set(DOOR) <= set(scope)


class TestCost:
    def test_importing_brings_torch_and_nothing_heavy(self):
        code = f"import sys, pullback; print([m for m in {HEAVY} if m in sys.modules])"

        assert python(code).strip() == "[]"

    def test_the_loop_of_ones_own_needs_nothing_heavy_either(self):
        code = f"""
import sys, torch, pullback as pb
x = torch.randn(8, 2)
twin = pb.Twin(pb.MLP(2, 1))
y, dydx = twin(x)
pb.DifferentialLoss.from_data(x, x[:, :1], x)(y, x[:, :1], dydx, x).backward()
pb.value_and_gradient(lambda z: z.sum(1), x)
print([m for m in {HEAVY} if m in sys.modules])
"""
        assert python(code).strip() == "[]"

    def test_importing_leaves_torch_and_the_interpreter_as_they_were(self):
        code = """
import torch, warnings, random
before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
          torch.get_rng_state().sum(), list(warnings.filters), random.getstate())
import pullback
pullback.DifferentialRegressor
after = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
         torch.get_rng_state().sum(), [f for f in warnings.filters if f in before[4]],
         random.getstate())
print(all(a == b for a, b in zip(before[:4], after[:4])), before[5] == after[5])
"""
        assert python(code).strip() == "True True"


BLOCK = "import sys\nsys.modules.update(dict.fromkeys({names!r}))\n"  # as if not installed


class TestMissingExtras:
    def test_the_message_names_purpose_package_and_extra(self):
        with pytest.raises(MissingExtraError) as missing:
            require("not_there.at_all", extra="plot", purpose="report: drawing")

        assert str(missing.value) == (
            "report: drawing needs not_there, which is not installed: pip install 'pullback[plot]'"
        )
        assert isinstance(missing.value, ImportError)

    def test_the_main_job_needs_no_extra(self):
        code = (
            BLOCK.format(names=["pandas", "polars", "pyarrow", "matplotlib"])
            + """
import numpy as np, pullback as pb
x = np.linspace(-1, 1, 20)[:, None]
m = pb.DifferentialRegressor((4,), "tanh", epochs=5, random_state=0)
m.fit(x, np.sin(x[:, 0]), np.cos(x))
print(m.predict(x, return_gradient=True)[1].shape)
"""
        )
        assert python(code).strip() == "(20, 1)"

    def test_frames_name_theirs(self):
        code = (
            BLOCK.format(names=["pandas", "polars"])
            + """
import numpy as np, pullback as pb
x = np.linspace(-1, 1, 20)[:, None]
m = pb.DifferentialRegressor((4,), "tanh", epochs=5, random_state=0).fit(x, np.sin(x[:, 0]))
for kind in ("pandas", "polars"):
    try:
        m.set_output(transform=kind).predict(x)
    except pb.errors.MissingExtraError as error:
        print(error)
"""
        )
        lines = python(code).splitlines()

        assert [line.split(",")[0] for line in lines] == [
            "set_output('pandas') needs pandas",
            "set_output('polars') needs polars",
        ]
        assert all(line.endswith("pip install 'pullback[frames]'") for line in lines)
