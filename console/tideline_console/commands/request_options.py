"""Makes a command's options from those that a request declares (`tideline.contract.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.contract.options import Option, Purpose, options_of
from tideline.contract.request import DumpRequest, KeyRange, TimeRange
from tideline_console.commands.options import with_parameters

KEY = "KEY"
_CSV = "CSV: the first key columns or all."
_FILE = "CSV, a key per line (or JSON lines, *.jsonl); - is standard input."
SHORT = {"sample_percent": "--sample"}
"""Shorter names that are accepted too."""


def request_options(purpose: Purpose) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of requests of ``purpose``, as keywords.

    Numbers are passed as numbers, keys as a path, ranges as tuples of texts: see
    `tideline_console.requests`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        options = options_of(DumpRequest, purpose)
        made = [parameter for option in options for parameter in _parameters(option)]

        @wraps(command)
        def run(**given: Any) -> None:
            ends = {end: given.pop(f"key_{end}") for end in ("from", "to")}
            command(**given, key_range=(ends["from"], ends["to"]))

        return with_parameters(
            run, [*(one for one in own if one.kind is not one.VAR_KEYWORD), *made]
        )

    return decorate


def _parameters(option: Option) -> Iterator[inspect.Parameter]:
    flag = f"--{option.name.replace('_', '-')}"
    if option.kind is int:
        kind = int if option.default is not None else int | None
        flags = [*([SHORT[option.name]] if option.name in SHORT else []), flag]
        shown = option.default is not None
        words = f"{option.title}. {option.help}"
        yield _parameter(
            option.name,
            kind,
            typer.Option(*flags, min=option.least, max=option.most, help=words, show_default=shown),
            option.default,
        )
    elif option.kind is KeyRange:
        for part in option.parts:
            flags = [f"--{part.name}", f"--keys-{part.name}"]
            words = f"{part.help} {option.help} {_CSV}"
            chosen = typer.Option(*flags, help=words, metavar=KEY, show_default=False)
            yield _parameter(f"key_{part.name}", str | None, chosen, None)
    elif option.kind is TimeRange:
        names = " ".join(part.name.upper() for part in option.parts)
        chosen = typer.Option(flag, help=option.help, metavar=names, show_default=False)
        yield _parameter(option.name, tuple[str, str, str] | None, chosen, None)
    else:
        words = f"{option.help} {_FILE}"
        chosen = typer.Option(flag, help=words, metavar="FILE", show_default=False)
        yield _parameter(option.name, Path | None, chosen, None)


def _parameter(name: str, kind: Any, chosen: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, chosen],
    )
