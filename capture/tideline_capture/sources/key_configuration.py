"""Key configuration: how the settings identify a table's rows, as the sources need it.

A table's rows are identified by the key that the source declares, by the columns that the settings
name, or, where the settings allow it, only by their whole content: then the log must hold the row
before each update and delete, and equal rows are only counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tideline.contract.modes import Mode
from tideline.contract.printable import toml_text
from tideline.contract.schema import TableId
from tideline.settings import Settings


@dataclass(frozen=True, slots=True)
class KeyConfiguration:
    """The key configuration of one table.

    ``key``: columns that identify rows, whatever the source declares; () for its own key.
    ``keyless``: a table without any key is still captured; ``counted``: its equal rows are counted,
    so a copy of it must be exact. ``image``: rows of the log come with the row before, as far as
    the log has it.
    """

    key: tuple[str, ...] = ()
    keyless: bool = False
    image: bool = False
    counted: bool = False

    def key_of(self, declared: tuple[str, ...]) -> tuple[str, ...]:
        """Return the key of a table that declares this one."""
        return self.key or declared


KeyConfigurations = Callable[[TableId], KeyConfiguration]


def default_key(table: TableId) -> KeyConfiguration:
    """Return the default for every table, unless the settings say otherwise."""
    return KeyConfiguration()


def key_configurations_of(settings: Settings) -> KeyConfigurations:
    """Return the key configuration of each table in ``settings``."""

    @functools.lru_cache(maxsize=4096)
    def of(table: TableId) -> KeyConfiguration:
        own = settings.of_table(table)
        counted = own.keyless == "counted" and own.mode is Mode.CURRENT
        keyless = counted or own.mode is Mode.APPEND
        return KeyConfiguration(own.key, keyless, own.before_image == "full", counted)

    return of


def key_alternatives(table: TableId) -> str:
    """Return a hint with the settings available for a table that has no key."""
    section = f"[tables.{toml_text(str(table))}]"
    return (
        f'or set in {section} one of: key = ["…"], columns with a unique index that are never NULL;'
        ' keyless = "counted", where equal rows are counted; mode = "append", a log of changes'
    )
