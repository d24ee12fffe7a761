"""The ``tideline`` command: its subcommands and its exit.

Nothing heavy is imported here or at the top of what this imports, so that ``tideline --help`` is
quick and a machine without Spark or Airflow can still capture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from tideline.contract.errors import TidelineError
from tideline_console.commands import pipeline, requests, setup, warehouse
from tideline_console.commands.inspect import inspect_app
from tideline_console.errors import (
    EXIT_INTERRUPTED,
    EXIT_MISCONFIGURED,
    OURS,
    exit_code,
    not_installed,
    report,
)

app = typer.Typer(
    name="tideline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(inspect_app)
_COMMANDS: tuple[Callable[..., None], ...] = (
    setup.init,
    setup.assess,
    pipeline.doctor,
    pipeline.capture,
    pipeline.publish,
    requests.dump,
    requests.verify,
    requests.pause,
    requests.resume,
    requests.cancel,
    requests.tune,
    warehouse.plan,
    warehouse.merge,
    warehouse.maintain,
    warehouse.aggregate,
    warehouse.rebuild,
    warehouse.delete_former,
    warehouse.garbage,
    pipeline.status,
    setup.cost,
    setup.delete_pipeline,
)
for _command in _COMMANDS:
    app.command()(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tideline {version('tideline-cdc')}")
        raise typer.Exit


@app.callback()
def _of_all(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Keep warehouse tables equal to their source database, and prove it."""


def main(program: Callable[[], object] = app) -> None:
    """Run as the entry point of the installed program, or another ``program`` in the same way."""
    try:
        program()
    except TidelineError as error:
        report(error)
        sys.exit(exit_code(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OURS:
            raise
        report(not_installed(missing))
        sys.exit(EXIT_MISCONFIGURED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
