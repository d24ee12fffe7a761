"""Makes ``docs/SETTINGS.md`` from the docstrings of the settings.

``python -m tideline.settings.reference > docs/SETTINGS.md``
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tideline.settings import settings_model
from tideline.settings.aggregates import ChildSettings
from tideline.settings.base import Effect
from tideline.settings.effects import ENTRIES, effects, keys_of, section_of

_HEAD = """\
# Settings

Everything that `tideline.toml` may hold, with its default. The file is named by `--config`, else by
`$TIDELINE_CONFIG`, else it is `./tideline.toml`. Each key can come from the environment instead,
which wins: `TIDELINE_` and the key in capitals, sections set off by two underscores
(`TIDELINE_SOURCE__PASSWORD`). A mistake is named with its key, all mistakes at once.

Units are in the names: `_s` seconds, `_ms` milliseconds, `_bytes` bytes, `_days`, `_hours`.

A change of the file *counts*

| | for |
|---|---|
| live | commands when they are run, and the worker: it looks at the file every two seconds |
| restart | commands, and the worker once restarted: its log and `tideline status` name the key |
| command | commands and Airflow's tasks when they are run: the worker does not read it |

A merger (`tideline merge --follow`) reads the file when it starts, and for each new Spark session,
whatever the key: restart it. What comes from the environment is the process's own and needs a
restart in any case. A file with mistakes changes nothing. This page is made from the settings'
classes by `python -m tideline.settings.reference`, and a test compares the two.
"""
_TABLES = """\
By table: `[tables."PATTERN"]`, a shell pattern over `schema.table` (`[tables."public.*"]`). What a
later entry says wins over earlier ones, key by key.
"""
_AGGREGATES = """\
By aggregate: `[aggregates.NAME]` ([AGGREGATES](AGGREGATES.md)). A publisher reads the file when it
starts, `tideline aggregate` in each run.
"""
_CHILDREN = """\
By the field that a child has in its parent's document.
"""
_PUBLISHERS = """\
By publisher: `[publish.NAME]` ([PUBLISHING](PUBLISHING.md)). A publisher reads the file when it
starts.
"""


def reference() -> str:
    fields = settings_model().model_fields
    when = effects()
    top = [(name, one, when[name]) for name, one in fields.items() if name in when]
    parts = [_HEAD, *_part(None, "", top)]
    for name, one in fields.items():
        section = section_of(one)
        if section is not None:
            parts += _part(f"[{name}]", _words(inspect.getdoc(section)), keys_of(section))
    for name, text in (
        ("tables", _TABLES),
        ("aggregates", _AGGREGATES),
        ("publish", _PUBLISHERS),
    ):
        parts += _part(f"[{name}]", text, keys_of(ENTRIES[name]))
        if name == "aggregates":
            parts += _part("[aggregates.….children.FIELD]", _CHILDREN, keys_of(ChildSettings))
    return "\n".join(parts)


def _part(
    title: str | None, text: str, keys: Iterable[tuple[str, FieldInfo, Effect]]
) -> Iterator[str]:
    if title is not None:
        yield f"## `{title}`\n"
    if text:
        yield text if text.endswith("\n") else f"{text}\n"
    yield "| key | default | counts | meaning |"
    yield "|---|---|---|---|"
    for name, one, effect in keys:
        yield f"| `{name}` | {_default(one)} | {effect.value} | {_words(one.description)} |"
    yield ""


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
    if isinstance(value, frozenset):
        value = tuple(sorted(value))
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    return f"`{value}`"


def _words(text: str | None) -> str:
    """Return a docstring as one line of Markdown."""
    line = re.sub(r"\s+", " ", text or "").strip()
    return line.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
