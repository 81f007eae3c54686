"""Options and checks that several commands share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pullback.errors import FileError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

PATH = click.Path(path_type=Path)

force = click.option("--force", is_flag=True, help="Replace what is at the output's path.")


def output(*, what: str, **default: Any) -> Decorator:
    """The option -o/--output; it must be given unless it has a default."""
    # A default of None would count as one: click then asks for nothing.
    return click.option(
        "-o", "--output", type=PATH, required=not default, help=what, show_default=True, **default
    )  # fmt: skip


def roles(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --x, --y, --dydx and --no-derivatives."""
    columns = (
        "Columns, separated by commas; patterns such as 'spot*' and arrays of an npz file too."
    )
    for option in (
        click.option("--no-derivatives", is_flag=True, help="Leave derivatives in the file aside."),
        click.option(
            "--dydx", multiple=True, metavar="COLUMNS",
            help="Derivatives: columns named like dprice/dspot, or dprice/dspot=COLUMN, or all of "
            "them in order. Default: those the file names.",
        ),
        click.option("--y", multiple=True, metavar="COLUMNS", help="Outputs, as --x."),
        click.option("--x", multiple=True, metavar="COLUMNS", help=f"Inputs. {columns}"),
    ):  # fmt: skip
        function = option(function)
    return function


def derivative_items(dydx: Sequence[str], no_derivatives: bool) -> Sequence[str] | None:
    """What `tables.choose` takes as dydx."""
    if dydx and no_derivatives:
        raise click.UsageError("--dydx and --no-derivatives exclude each other")
    return () if no_derivatives else (dydx or None)


def check_output(path: Path, force: bool, *, inputs: Sequence[Path] = ()) -> None:
    """Refuse, before any work, an output that cannot be put there.

    Raises:
        FileError: it exists and `force` is off, it is an input, or its folder is not there.
    """
    if any(path.resolve() == source.resolve() for source in inputs):
        raise FileError(f"{path}: is an input of this command; give the output another name")
    if path.exists() and not force:
        raise FileError(f"{path}: exists; pass --force to replace it")
    if not path.absolute().parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}; make it first")


def check_model_folder(path: Path, force: bool, *, inputs: Sequence[Path] = ()) -> None:
    """The same for a model; with `force` only a model, or an empty folder, is replaced.

    Raises:
        FileError: as `check_output`, or what is there is no model.
    """
    check_output(path, force, inputs=inputs)
    if path.exists() and not (path / "config.json").is_file():
        if path.is_dir() and not any(path.iterdir()):
            return
        raise FileError(f"{path}: exists and is not a saved model; give the model another name")


def units_of(items: Sequence[str]) -> Mapping[str, str]:
    """Units from options of the form NAME=UNIT."""
    pairs = [item.partition("=") for item in items]
    for name, sign, unit in pairs:
        if not (name and sign and unit):
            raise click.BadParameter(f"expected NAME=UNIT, got {name!r}", param_hint="--unit")
    return {name: unit for name, _, unit in pairs}
