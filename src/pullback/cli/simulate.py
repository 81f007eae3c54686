"""`pullback simulate`: a table of states, payoffs and pathwise derivatives."""

import importlib
import inspect
import re
import sys
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from pullback import __version__
from pullback.cli.group import INTERRUPTED
from pullback.cli.options import check_output, force, output, units_of
from pullback.learning.progress import progress_bar
from pullback.pathwise import Distribution, Labels, LogNormal, Normal, Uniform, pathwise
from pullback.pathwise.markets import MARKETS, Market
from pullback.tables import Table, suffix_of
from pullback.tables.shards import write_in_shards

_LAWS: Mapping[str, Callable[[float, float], Distribution]] = {
    "uniform": Uniform,
    "normal": Normal,
    "lognormal": LogNormal,
}


@click.command("simulate", short_help="Make a table of payoffs with derivatives.")
@click.argument("market")
@output(what="The table: parquet, npz or csv.")
@click.option("--rows", type=click.IntRange(1), default=8192, show_default=True)
@click.option("--dim", type=click.IntRange(1), help="Assets of the basket.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter or a setting."
)
@click.option(
    "--vary", "varied", multiple=True, metavar="NAME=LAW",
    help="Make a parameter an input: vol=0.1:0.4, spot=lognormal(100,0.3) or x=normal(0,1).",
)  # fmt: skip
@click.option("--noise", help="For MODULE:FUNCTION: the shape of one path's normals, such as 12,2.")
@click.option("--unit", "units", multiple=True, metavar="NAME=UNIT", help="Unit of a column.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--sampler", type=click.Choice(["pseudo", "sobol"]), default="pseudo", show_default=True
)
@click.option("--antithetic", is_flag=True, help="Average each path with its mirror image.")
@click.option("--paths-per-state", type=click.IntRange(1), default=1, show_default=True)
@click.option("--exact", is_flag=True, help="Exact values and derivatives instead of one path's.")
@click.option(
    "--check-labels", type=click.Choice(["raise", "warn", "off"]), default="raise",
    show_default=True, help="What to do when pathwise derivatives are wrong.",
)  # fmt: skip
@click.option(
    "--shard-rows", type=click.IntRange(1), default=65_536, show_default=True,
    help="Rows that are in memory at a time, and kept when a run breaks off.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Say nothing but errors and warnings.")
@force
@click.pass_context
def command(
    ctx: click.Context,
    market: str,
    output: Path,
    rows: int,
    shard_rows: int,
    units: tuple[str, ...],
    quiet: bool,
    force: bool,
    **options: Any,
) -> None:
    """Simulate payoffs with their derivatives with respect to the whole state.

    MARKET is one of black-scholes, digital, up-and-out, basket, heston, asian, two-asset, autocall,
    bermudan-put and bermudan-swaption; or MODULE:NAME, a market or a function payoff(state, noise)
    of your own. Rows depend on their number and the seed alone. A run that breaks off goes on when
    the same command is given again.
    """
    check_output(output, force)
    suffix_of(output)
    made_from = {"market": market, "units": units, "version": __version__, **options}
    maker = _Maker(market, units_of(units), **options)
    done = 0
    try:
        with progress_bar(False if quiet else None, "simulate") as bar:

            def told(count: int) -> None:
                nonlocal done
                done = count
                bar(count, rows, {})

            found = write_in_shards(
                output, rows, maker, shard_rows=shard_rows, made_from=made_from, told=told
            )
    except KeyboardInterrupt:
        click.echo(
            f"pullback: interrupted; {done:,} of {rows:,} rows are kept, and the same command goes "
            "on from there",
            err=True,
        )
        ctx.exit(INTERRUPTED)
    if not quiet:
        again = f" ({found:,} from an earlier run)" if found else ""
        click.echo(f"{output}: {rows:,} rows{again}")
        click.echo(maker.described)


class _Maker:
    """Rows of a table, by their numbers."""

    def __init__(
        self,
        market: str,
        units: Mapping[str, str],
        *,
        dim: int | None,
        settings: Sequence[str],
        varied: Sequence[str],
        noise: str | None,
        exact: bool,
        check_labels: str,
        **options: Any,
    ) -> None:
        changes = {**_pairs("--set", settings, _number), **_pairs("--vary", varied, _law)}
        if dim is not None:
            changes["dim"] = dim
        self._market = _own(market, changes, noise) if ":" in market else _built(market, changes)
        self._exact = exact
        self._check = False if check_labels == "off" else check_labels
        self._options = {**options, "units": units}
        self.described = ""

    def __call__(self, rows: range) -> Table:
        checks = {"check_labels": self._check, "check_rows": rows.start == 0}
        if rows.start or self._exact:
            checks["check_labels"] = False  # the first rows speak for all
        labels = self._market.sample(rows, unconnected="zero", **checks, **self._options)
        names = labels.columns
        self.described = f"  x     {', '.join(names.inputs)}\n  y     {', '.join(names.outputs)}"
        if not self._exact:
            return _table(labels, labels.y.numpy(), _dydx(labels))
        if not isinstance(self._market, Market):
            raise click.UsageError("--exact needs a market: a function has no exact answer")
        value = self._market.exact_value(labels.x)
        gradient = self._market.exact_gradient(labels.x)
        return _table(labels, value[:, None].numpy(), gradient[:, None].numpy())


def _dydx(labels: Labels) -> np.ndarray:
    assert labels.dydx is not None, "pathwise labels have derivatives"
    return labels.dydx.numpy()


def _table(labels: Labels, y: np.ndarray, dydx: np.ndarray) -> Table:
    return Table(labels.columns, labels.x.numpy(), y, dydx)


@dataclass(frozen=True)
class _Function:
    """A payoff of the user's own, sampled as a market is."""

    payoff: Any
    state: Mapping[str, Any]
    noise: tuple[int, ...]

    def sample(self, rows: range, **options: Any) -> Labels:
        return pathwise(self.payoff, self.state, self.noise, rows=rows, **options)


def _own(name: str, changes: Mapping[str, Any], noise: str | None) -> "Market | _Function":
    """What MODULE:NAME names."""
    found = _imported(name)
    if isinstance(found, type) and issubclass(found, Market):
        return found(**changes)
    if isinstance(found, Market):
        return found.changed(**changes)
    if not callable(found):
        raise click.BadParameter(f"{name} is no function and no market", param_hint="MARKET")
    if noise is None or not changes:
        raise click.UsageError(
            f"{name} is a function: say the shape of one path's noise with --noise, and each part "
            "of its state with --vary"
        )
    sizes = noise.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise click.BadParameter(
            f"expected a shape such as 12,2, got {noise!r}", param_hint="--noise"
        )
    return _Function(found, changes, tuple(map(int, sizes)))


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    # The user's module is looked for where the command is given, as `python -m` does.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="MARKET") from error
    finally:
        sys.path.pop(0)


def _built(name: str, changes: Mapping[str, Any]) -> Market:
    if name not in MARKETS:
        known = ", ".join(MARKETS)
        raise click.BadParameter(
            f"expected one of {known}, or MODULE:NAME; got {name!r}", param_hint="MARKET"
        )
    maker = MARKETS[name]
    has = list(inspect.signature(maker).parameters)
    unknown = [key for key in changes if key not in has]
    if unknown:
        raise click.UsageError(f"{name} has no {unknown[0]!r}; it has {', '.join(has)}")
    return maker(**changes)


def _pairs(option: str, items: Sequence[str], parse: Any) -> dict[str, Any]:
    pairs = [item.partition("=") for item in items]
    for name, sign, text in pairs:
        if not (name and sign and text):
            raise click.BadParameter(f"expected NAME=VALUE, got {name!r}", param_hint=option)
    return {name: parse(text) for name, _, text in pairs}


def _number(text: str) -> Any:
    """A number or a tuple of them; else the text itself, such as a kind of labels."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _law(text: str) -> Any:
    """low:high, or the name of a law with two numbers."""
    match = re.fullmatch(r"(?:(?P<law>\w+)\()?(?P<a>[-+.\deE]+)[:,]\s*(?P<b>[-+.\deE]+)\)?", text)
    if match and (match["law"] is None) == (":" in text) and match["law"] in (None, *_LAWS):
        law = _LAWS[match["law"] or "uniform"]
        try:
            numbers = float(match["a"]), float(match["b"])
        except ValueError:
            numbers = None
        if numbers:
            return law(*numbers)
    raise click.BadParameter(
        f"expected LOW:HIGH or one of {', '.join(_LAWS)} with two numbers, such as "
        f"lognormal(100,0.3); got {text!r}",
        param_hint="--vary",
    )
