"""Options shared by many commands, and the settings that commands run with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

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

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def as_one(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of ``kind``, a dataclass, passed to it as one
    argument ``name``."""
    hints = get_type_hints(kind, include_extras=True)
    made = [
        inspect.Parameter(field.name, _KEYWORD, default=field.default, annotation=hints[field.name])
        for field in fields(kind)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            chosen = kind(**{one.name: given.pop(one.name) for one in made})
            command(**given, **{name: chosen})

        own = inspect.signature(command, eval_str=True).parameters.values()
        return with_parameters(run, [*made, *(one for one in own if one.name != name)])

    return decorate


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Set the signature of ``command`` to ``parameters``, which become arguments and options."""
    keywords = [one.replace(kind=_KEYWORD) for one in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in keywords}
    return command


def settings_at(config: Path | None) -> Settings:
    """Read the settings in the file; report all errors together."""
    from tideline.settings import load_settings

    return load_settings(config)


def job_settings_at(config: Path | None) -> Settings:
    """Read the settings for a command that plans and runs jobs. Raises Misconfigured for those on a
    cluster whose executors may not see the folders."""
    settings = settings_at(config)
    from tideline.cluster_spark import require_no_folder

    require_no_folder(settings)
    return settings
