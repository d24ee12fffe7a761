"""Options that many commands have, and the settings that they are run with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tideline.settings import Settings

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The settings file; without it $TIDELINE_CONFIG, else ./tideline.toml.",
        show_default=False,
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Tables as schema.table, or patterns such as public.*", metavar="TABLE…"),
]


def settings_at(config: Path | None) -> Settings:
    """The settings in the file, all errors together."""
    from tideline.settings import load_settings

    return load_settings(config)
