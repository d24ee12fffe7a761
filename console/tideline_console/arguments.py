"""Declares the options of commands that pass them on as one value.

Each field is an option with its help text, made by `tideline_console.commands.options.as_one`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tideline.contract.modes import Mode
from tideline.contract.target_url import FORMAT_NAMES, TableFormatName


@dataclass(frozen=True, slots=True)
class InitOptions:
    """Settings to write, as far as given; without ``url`` the user is asked for all."""

    url: Annotated[
        str | None,
        typer.Option(
            help="The source, without a password: postgresql://user@host:port/database, mysql://…"
            " or mariadb://user@host:port/. Without it all is asked for.",
            show_default=False,
        ),
    ] = None
    pipeline: Annotated[
        str | None, typer.Option(help="The pipeline's name.", show_default=False)
    ] = None
    tables: Annotated[
        list[str] | None,
        typer.Option(help="A pattern of tables; give several.", show_default=False),
    ] = None
    exclude: Annotated[
        list[str] | None, typer.Option(help="… of those that are not.", show_default=False)
    ] = None
    store: Annotated[str | None, typer.Option(help="Where segments lie.", show_default=False)] = (
        None
    )
    warehouse: Annotated[
        str | None, typer.Option(help="Where the tables will lie.", show_default=False)
    ] = None
    control: Annotated[
        str | None, typer.Option(help="The Redis or Valkey of requests.", show_default=False)
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option(help="A file that holds the source's password.", show_default=False),
    ] = None
    format: Annotated[
        str | None,
        typer.Option(help=f"Of the tables: {', '.join(FORMAT_NAMES)}.", show_default=False),
    ] = None
    catalog: Annotated[
        str | None,
        typer.Option(
            help="The catalog of Iceberg tables, without credentials: postgresql://host/database,"
            " sqlite:////absolute/path.db or https://host.",
            show_default=False,
        ),
    ] = None
    catalog_user: Annotated[
        str | None, typer.Option(help="Its user, or client id.", show_default=False)
    ] = None
    project: Annotated[str | None, typer.Option(help="BigQuery's project.", show_default=False)] = (
        None
    )
    location: Annotated[
        str | None, typer.Option(help="The location of its datasets.", show_default=False)
    ] = None


@dataclass(frozen=True, slots=True)
class CostOptions:
    """Figures to compute costs from, as far as given."""

    tables: Annotated[
        int | None, typer.Option(min=1, help="Captured tables.", show_default=False)
    ] = None
    busy: Annotated[
        int | None, typer.Option(min=1, help="… of which change.", show_default=False)
    ] = None
    changes_per_s: Annotated[
        float | None,
        typer.Option(min=0.0, help="Changed rows per second, of all tables.", show_default=False),
    ] = None
    row_bytes: Annotated[
        float | None, typer.Option(min=1.0, help="Bytes of one in a part.", show_default=False)
    ] = None
    flush_s: Annotated[
        list[float] | None,
        typer.Option(min=0.01, help="Flush interval; several are compared.", show_default=False),
    ] = None
    heartbeat_s: Annotated[float | None, typer.Option(min=0.01, show_default=False)] = None
    merge_every_s: Annotated[
        float | None,
        typer.Option(
            "--merge-every", min=1.0, help="Seconds from merge to merge.", show_default=False
        ),
    ] = None
    passive: Annotated[
        int | None, typer.Option(min=0, help="Workers that wait.", show_default=False)
    ] = None

    @property
    def has_traffic(self) -> bool:
        """Return whether any figure of the tables' traffic was given."""
        given = (self.tables, self.busy, self.changes_per_s, self.row_bytes)
        return any(one is not None for one in given)


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """Options of a rebuild; ``mode`` None: the mode in the settings."""

    mode: Annotated[
        Mode | None,
        typer.Option(
            help="How the table is kept from then on; without it as the settings say.",
            show_default=False,
        ),
    ] = None
    since_dump: Annotated[
        bool,
        typer.Option(
            "--since-dump",
            help="Begin with the latest full dump, also where the mode keeps what was before it.",
        ),
    ] = False
    accept_differences: Annotated[
        bool,
        typer.Option(
            "--accept-differences",
            help="Put it in the live table's place although that holds something else.",
        ),
    ] = False
    restart: Annotated[
        bool, typer.Option("--restart", help="Give up a rebuild of the table that is under way.")
    ] = False
    to: Annotated[
        TableFormatName | None,
        typer.Option(
            help="Move the table to another table format instead, as it is, proven equal.",
            show_default=False,
        ),
    ] = None
    restart_before_0_2: Annotated[bool, typer.Option("--anew", hidden=True)] = False
