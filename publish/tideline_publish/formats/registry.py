"""The forms of events by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline_publish.formats.base import EventFormat
from tideline_publish.formats.json import JsonFormat

FORMATS: Mapping[str, Callable[[], EventFormat]] = {"json": JsonFormat}
