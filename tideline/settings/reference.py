"""``docs/SETTINGS.md``, made of the settings' own words.

``python -m tideline.settings.reference > docs/SETTINGS.md``
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tideline.settings import Settings, TableSettings
from tideline.settings.base import Section

_HEAD = """\
# Settings

Everything that `tideline.toml` may hold, with its default. The file is named by `--config`, else by
`$TIDELINE_CONFIG`, else it is `./tideline.toml`. Each key can come from the environment instead,
which wins: `TIDELINE_` and the key in capitals, sections set off by two underscores
(`TIDELINE_SOURCE__PASSWORD`). A mistake is named with its key, all mistakes at once.

Units are in the names: `_s` seconds, `_ms` milliseconds, `_bytes` bytes, `_days`, `_hours`. A
running worker reads a changed file anew. This page is made from the settings' classes by
`python -m tideline.settings.reference`, and a test compares the two.
"""
_TABLES = """\
By table: `[tables."PATTERN"]`, a shell pattern over `schema.table` (`[tables."public.*"]`). What a
later entry says wins over earlier ones, key by key.
"""


def reference() -> str:
    """The page."""
    fields = Settings.model_fields
    top = {name: one for name, one in fields.items() if _section(one) is None and name != "tables"}
    parts = [_HEAD, *_part(None, "", top)]
    for name, one in fields.items():
        section = _section(one)
        if section is not None:
            parts += _part(f"[{name}]", _words(inspect.getdoc(section)), section.model_fields)
    parts += _part("[tables]", _TABLES, dict(_flat(TableSettings)))
    return "\n".join(parts)


def _part(title: str | None, text: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    if title is not None:
        yield f"## `{title}`\n"
    if text:
        yield text if text.endswith("\n") else f"{text}\n"
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for name, one in fields.items():
        yield f"| `{name}` | {_default(one)} | {_words(one.description)} |"
    yield ""


def _flat(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, one in section.model_fields.items():
        inner = _section(one)
        if inner is None:
            yield prefix + name, one
        else:
            yield from _flat(inner, f"{prefix}{name}.")


def _section(one: FieldInfo) -> type[Section] | None:
    kind = one.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _default(one: FieldInfo) -> str:
    value: Any = one.default
    if value is PydanticUndefined:
        return "must be given"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None:
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    return f"`{value}`"


def _words(text: str | None) -> str:
    """A docstring as one line of Markdown."""
    line = re.sub(r"\s+", " ", text or "").strip()
    return line.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
