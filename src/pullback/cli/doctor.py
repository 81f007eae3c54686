"""`pullback doctor`: run a script, a module or tests, and say what is wrong with their graphs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", is_flag=True, help="TARGET is a module, as in `python -m`.")
@click.option("--level", type=click.Choice(["light", "full"]), default="full", show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Write findings here.")
@click.option("--explain", "rule", metavar="RULE", help="Print the page of a rule and stop.")
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    module: bool,
    level: str,
    json_path: str | None,
    rule: str | None,
    target: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run TARGET unchanged and diagnose its autograd graphs.

    TARGET is a script, a module (-m) or a pytest node id (tests/test_a.py::test_b). Its output,
    its exit code and its exceptions stay as they are; findings go to standard error.
    """
    from pullback.doctor.explaining import explain

    if rule is not None:
        click.echo(explain(rule), nl=False)
        return
    if target is None:
        raise click.UsageError("nothing to run: name a script, a module (-m) or a test")
    outcome = _runner(target, module)(target, arguments, level)
    sys.stdout.flush()
    click.echo(outcome.error, err=True, nl=False)
    for finding in outcome.findings:
        if finding not in outcome.shown:
            click.echo(f"\n{finding}", err=True)
    if json_path is not None:
        _write(Path(json_path), outcome.findings.to_json() + "\n")
    raise SystemExit(outcome.code)


def _runner(target: str, module: bool) -> Callable[[str, tuple[str, ...], str], Any]:
    from pullback.doctor.running import run_module, run_script, run_tests

    if module:
        return lambda t, a, level: run_module(t, a, level=level)
    if "::" in target or Path(target).name.startswith("test_"):
        return lambda t, a, level: run_tests([t, *a], level=level)
    if not Path(target).is_file():
        raise click.UsageError(f"no such script: {target}")
    return lambda t, a, level: run_script(t, a, level=level)


def _write(path: Path, text: str) -> None:
    # Moved into place, so that a reader never sees half a file.
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
