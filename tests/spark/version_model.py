"""Versions of rows in plain Python, one event after another: the oracle of ``history`` and
``soft_deletes``. It shares no step with the DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Key = tuple[Any, ...]
Value = tuple[Any, str | None]
"""A column's value and its overflow text."""


@dataclass(frozen=True)
class Version:
    """What a row held from ``from_seq`` on, until ``to_seq`` (None: still); ``ended``: no change of
    its own said so."""

    from_seq: int
    seq: int
    values: Mapping[str, Value]
    absent: frozenset[str]
    to_seq: int | None = None
    ended: bool = False


@dataclass
class Model:
    """All versions, by key, oldest first; ``columns`` without the key's."""

    columns: tuple[str, ...]
    versions: dict[Key, list[Version]] = field(default_factory=dict)

    def change(
        self, seq: int, op: str, key: Key, carried: Mapping[str, Value], before: Key | None = None
    ) -> None:
        """One row of the log or of a dump."""
        if op == "d":
            self._close(key, seq)
            return
        was = self.open(key if before is None else before)
        if before is not None and before != key:
            self._close(before, seq)
        elif op == "r" and was is not None and self._confirmed(key, was, seq, carried):
            return
        self._close(key, seq)
        values = {**(was.values if was is not None else {}), **carried}
        absent = was.absent if was is not None else frozenset(self.columns)
        made = Version(seq, seq, values, absent - set(carried))
        self.versions.setdefault(key, []).append(made)

    def end(self, seq: int, delete_before: int) -> None:
        """Everything last seen at or below ``delete_before`` is gone from ``seq`` on."""
        for key in self.versions:
            newest = self.open(key)
            if newest is not None and newest.seq <= delete_before:
                self._close(key, seq, ended=True)

    def open(self, key: Key) -> Version | None:
        found = self.versions.get(key)
        return found[-1] if found and found[-1].to_seq is None else None

    def _confirmed(self, key: Key, was: Version, seq: int, carried: Mapping[str, Value]) -> bool:
        known = {n: v for n, v in carried.items() if n not in was.absent}
        if any(was.values[name] != value for name, value in known.items()):
            return False
        values = {**was.values, **carried}
        absent = was.absent - set(carried)
        self.versions[key][-1] = replace(was, seq=seq, values=values, absent=absent)
        return True

    def _close(self, key: Key, seq: int, *, ended: bool = False) -> None:
        newest = self.open(key)
        if newest is not None:
            self.versions[key][-1] = replace(newest, to_seq=seq, ended=ended)
