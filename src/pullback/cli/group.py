"""What all commands share: found when asked for, and mistakes answered with one line."""

import importlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from pullback.errors import PullbackError, PullbackWarning

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Failure(click.ClickException):
    """A user's mistake: one line on standard error, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the line."""
        click.echo(f"pullback: {' '.join(self.format_message().split())}", err=True)


class CommandGroup(click.Group):
    """A group whose commands live in modules that are imported when they are used.

    Args:
        modules: by name of the command: a module that holds it as `command`.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = dict(modules or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are used."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None."""
        if cmd_name not in self._modules:
            return None
        command: click.Command = importlib.import_module(self._modules[cmd_name]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a mistake becomes one line, Ctrl-C exit code 130."""
        try:
            with _warnings_as_lines():
                return super().invoke(ctx)
        except PullbackError as error:
            raise Failure(str(error)) from error
        except BrokenPipeError:
            raise  # the reader of our output has gone; click ends quietly
        except OSError as error:
            raise Failure(f"{error.filename or 'file'}: {error.strerror or error}") from error
        except KeyboardInterrupt:
            click.echo("pullback: interrupted; nothing was written", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show our warnings as lines of text, without the place in the source that raised them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def line(message: Any, category: Any, *place: Any, **more: Any) -> None:
            if issubclass(category, PullbackWarning):
                click.echo(f"pullback: warning: {' '.join(str(message).split())}", err=True)
            else:
                show(message, category, *place, **more)

        warnings.showwarning = line
        warnings.simplefilter("always", PullbackWarning)
        yield
