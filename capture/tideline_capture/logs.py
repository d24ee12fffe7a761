"""Makes text from outside (names, reasons, a server's messages) printable in the worker's log."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import structlog

from tideline.contract.printable import printable


def keep_to_lines() -> None:
    """Make every log line one of ours, whatever a name contains: its texts are `printable`.

    Other configuration stays; a second call changes nothing.
    """
    processors = structlog.get_config()["processors"]
    if one_line not in processors:
        processors.insert(0, one_line)
        structlog.configure(processors=processors)


def one_line(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Return the event with texts that are `printable`, also those in lists."""
    for name, value in event.items():
        event[name] = _shown(value)
    return event


class _Shown(str):
    """A text that was made printable; in quotes it is not escaped a second time."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{self}'"


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        text = printable(value)
        return value if text == value else _Shown(text)
    if isinstance(value, list | tuple):
        return type(value)(map(_shown, value)) if type(value) in (list, tuple) else value
    return value
