"""A settings file with every key in it: those that are given, and as comments all others.

Made from the docstrings of the settings, as docs/SETTINGS.md is, so that neither can lag behind.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tideline.settings import settings_model
from tideline.settings.base import Section
from tideline.settings.effects import keys_of
from tideline.settings.source_kinds import SOURCE_KINDS

_HEAD = """\
# Settings of the Tideline pipeline {pipeline}. What is commented out has the value that it shows.
# Each key can come from the environment instead, which wins: TIDELINE_SOURCE__PASSWORD.
"""
_TABLES = """\
# By table: a shell pattern over schema.table. What a later entry says wins, key by key.
# [tables."public.*"]
# mode = "current"
"""
_WIDTH = 98
_SECRET = ("password", "secret_access_key", "api_key", "token")
"""Keys that belong in the environment."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
"""The pattern of a link of docs/SETTINGS.md, from one page of docs to another."""


def settings_text(values: Mapping[str, Any], *, kind: str) -> str:
    """Return the text of the file. ``values``: the pipeline's name, and given keys by section;
    ``kind``: that of the source. No secret may be among them."""
    parts = [_HEAD.format(pipeline=values["pipeline"])]
    parts.append(f"pipeline = {_toml(values['pipeline'])}\n")
    for name, field in settings_model().model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            parts.append("\n".join(_section(name, section, values.get(name, {}), kind)) + "\n")
    return "\n".join([*parts, _TABLES])


def _section(
    name: str, section: type[Section], given: Mapping[str, Any], kind: str
) -> Iterator[str]:
    yield from _comment(inspect.getdoc(section))
    yield f"[{name}]"
    for key, field, _ in keys_of(section):
        if key.rpartition(".")[2] in _SECRET or _of_others(field, kind):
            continue
        yield from _comment(field.description)
        if key in given:
            yield f"{key} = {_toml(given[key])}"
        else:
            yield f"# {key} ={_default(field)}"


def _of_others(field: FieldInfo, kind: str) -> bool:
    """Return whether the docstring of a key begins with the titles of other kinds of source."""
    titles = {one.title for one in SOURCE_KINDS.values()}
    named = set((field.description or "").partition(":")[0].split(", "))
    return named <= titles and SOURCE_KINDS[kind].title not in named


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is PydanticUndefined:
        return ""
    return f" {_toml(value)}"


def _toml(value: Any) -> str:
    """Format a value as JSON, whose texts, numbers and arrays are TOML's."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _comment(text: str | None) -> Iterator[str]:
    plain = _LINK.sub(_page, (text or "").replace("`", ""))
    line = re.sub(r"\s+", " ", plain).strip()
    for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False):
        yield f"# {part}"


def _page(link: re.Match[str]) -> str:
    """Return a link as the file's reader finds it; one that is named as its page says no more."""
    name, page = link.groups()
    return f"docs/{page}" if page.startswith(f"{name}.md") else f"{name} (docs/{page})"
