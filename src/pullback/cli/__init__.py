"""The command line: parse, call, report, exit code.

Exit codes: 0 done; 2 a mistake, said in one line on standard error, nothing written; 130 Ctrl-C.
An output that exists is refused, unless --force is given.
"""

from platform import python_version

import click
import torch

from pullback import __version__
from pullback.cli.group import CommandGroup

COMMANDS = {
    "demo": "pullback.cli.demo",
    "simulate": "pullback.cli.simulate",
    "fit": "pullback.cli.fit",
    "predict": "pullback.cli.predict",
    "report": "pullback.cli.report",
    "doctor": "pullback.cli.doctor",
}


@click.group(
    cls=CommandGroup,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(
    __version__,
    prog_name="pullback",
    message=f"%(prog)s %(version)s (torch {torch.__version__}, Python {python_version()})",
)
def main() -> None:
    """Learn from values and derivatives; predict both."""
