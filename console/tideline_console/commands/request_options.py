"""Makes a command's options from those that a request declares (`tideline.contract.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.contract.options import Option, OptionKind, Purpose, options_of
from tideline.contract.request import DumpRequest
from tideline_console.commands.options import with_parameters

KEY = "KEY"
_CSV = "CSV: the first key columns or all."
_FILE = "CSV, a key per line (or JSON lines, *.jsonl); - is standard input."
SHORT = {"sample_percent": "--sample"}
"""Shorter names that are accepted too."""


def request_options(purpose: Purpose) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of requests of ``purpose``, as keywords.

    Numbers, flags and texts are passed as they are, keys as a path, ranges as tuples of texts: see
    `tideline_console.requests`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        options = options_of(DumpRequest, purpose)
        made = [parameter for option in options for parameter in PARAMETERS[option.kind](option)]

        @wraps(command)
        def run(**given: Any) -> None:
            ends = {end: given.pop(f"key_{end}") for end in ("from", "to")}
            command(**given, key_range=(ends["from"], ends["to"]))

        return with_parameters(
            run, [*(one for one in own if one.kind is not one.VAR_KEYWORD), *made]
        )

    return decorate


def _flag(option: Option) -> str:
    return f"--{option.name.replace('_', '-')}"


def _number(option: Option) -> Iterator[inspect.Parameter]:
    kind = int if option.kind is OptionKind.NUMBER else float
    flags = [*([SHORT[option.name]] if option.name in SHORT else []), _flag(option)]
    yield _plain(option, kind, *flags, min=option.least, max=option.most)


def _switch(option: Option) -> Iterator[inspect.Parameter]:
    flag = _flag(option)
    yield _plain(option, bool, flag if option.default is False else f"{flag}/--no-{flag[2:]}")


def _text(option: Option) -> Iterator[inspect.Parameter]:
    yield _plain(option, str, _flag(option), metavar="|".join(option.choices) or "TEXT")


def _plain(option: Option, kind: Any, *flags: str, **given: Any) -> inspect.Parameter:
    """Make an option whose value is passed as it is."""
    shown = option.default is not None
    words = f"{option.title}. {option.help}"
    chosen = typer.Option(*flags, help=words, show_default=shown, **given)
    return _parameter(option.name, kind if shown else kind | None, chosen, option.default)


def _key(option: Option) -> Iterator[inspect.Parameter]:
    words = f"{option.help} {_CSV}"
    chosen = typer.Option(_flag(option), help=words, metavar=KEY, show_default=False)
    yield _parameter(option.name, str | None, chosen, None)


def _keys(option: Option) -> Iterator[inspect.Parameter]:
    words = f"{option.help} {_FILE}"
    chosen = typer.Option(_flag(option), help=words, metavar="FILE", show_default=False)
    yield _parameter(option.name, Path | None, chosen, None)


def _key_range(option: Option) -> Iterator[inspect.Parameter]:
    for part in option.parts:
        flags = [f"--{part.name}", f"--keys-{part.name}"]
        words = f"{part.help} {option.help} {_CSV}"
        chosen = typer.Option(*flags, help=words, metavar=KEY, show_default=False)
        yield _parameter(f"key_{part.name}", str | None, chosen, None)


def _time_range(option: Option) -> Iterator[inspect.Parameter]:
    names = " ".join(part.name.upper() for part in option.parts)
    chosen = typer.Option(_flag(option), help=option.help, metavar=names, show_default=False)
    yield _parameter(option.name, tuple[str, str, str] | None, chosen, None)


PARAMETERS: Mapping[OptionKind, Callable[[Option], Iterator[inspect.Parameter]]] = {
    OptionKind.NUMBER: _number,
    OptionKind.DECIMAL: _number,
    OptionKind.FLAG: _switch,
    OptionKind.TEXT: _text,
    OptionKind.CHOICE: _text,
    OptionKind.KEY: _key,
    OptionKind.KEYS: _keys,
    OptionKind.KEY_RANGE: _key_range,
    OptionKind.TIME_RANGE: _time_range,
}


def _parameter(name: str, kind: Any, chosen: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, chosen],
    )
