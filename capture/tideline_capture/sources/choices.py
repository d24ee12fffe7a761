"""What the settings say of a table's identity, as the sources need it.

A table's rows are told apart by the key that the source declares, by the columns that the settings
name, or, where the settings allow it, by nothing but themselves: then the log must hold the row
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
class KeyChoice:
    """``key``: columns that tell rows apart, whatever the source declares; () for its own key.
    ``keyless``: without any key the table is captured all the same; ``counted``: and its equal rows
    are counted, so that a copy of it must be exact. ``image``: rows of the log come with the row
    before, as far as the log has it."""

    key: tuple[str, ...] = ()
    keyless: bool = False
    image: bool = False
    counted: bool = False

    def key_of(self, declared: tuple[str, ...]) -> tuple[str, ...]:
        """The key of a table that declares this one."""
        return self.key or declared


Choices = Callable[[TableId], KeyChoice]


def no_choice(table: TableId) -> KeyChoice:
    """What holds for every table unless the settings say otherwise."""
    return KeyChoice()


def choices_of(settings: Settings) -> Choices:
    """What ``settings`` say."""

    @functools.lru_cache(maxsize=4096)
    def of(table: TableId) -> KeyChoice:
        said = settings.of_table(table)
        counted = said.keyless == "counted" and said.mode is Mode.CURRENT
        keyless = counted or said.mode is Mode.APPEND
        return KeyChoice(said.key, keyless, said.before_image == "full", counted)

    return of


def ways_on(table: TableId) -> str:
    """What the settings can say of a table that has no key."""
    section = f"[tables.{toml_text(str(table))}]"
    return (
        f'or set in {section} one of: key = ["…"], columns with a unique index that are never NULL;'
        ' keyless = "counted", where equal rows are counted; mode = "append", a log of changes'
    )
