"""Finds the target of a table: the one of the tables at its urls that merges go to.

A table keeps the format that it was made in, so it may be elsewhere than the settings put a new
one. While it is moved (`tideline.contract.moves`), there are two. Each says by its own properties
whether it is in use: in most cases the first one that is read answers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tideline.contract.manifest import Manifest
from tideline.contract.moves import MOVED_PROPERTY, MOVING_PROPERTY
from tideline.contract.open_state import TableState
from tideline.contract.plan import app_id
from tideline.contract.schema import parse_table
from tideline.settings import Settings
from tideline.warehouse.state import TargetState, read_target


def target_of(settings: Settings, tail: Manifest, name: str, table: TableState) -> TargetState:
    """Return the target of a table's present generation, as merges are to find it.

    Where nothing is in use, that is where a new one is to be, with what lies there. Raises
    Unavailable where a log or a catalog cannot be read.
    """
    return _in_use(settings, name, _app(tail, name, table))


def target_at(
    settings: Settings, tail: Manifest, name: str, table: TableState, url: str
) -> TargetState:
    """Return the table at ``url``, whether in use or not, as `target_of` does."""
    return read_target(url, _app(tail, name, table), settings.warehouse_storage)


def live_url(settings: Settings, name: str) -> str:
    """Return the url of the target of the table called ``name``. Reads nothing where there is a
    place for one format only. Raises as `target_of` does."""
    urls = settings.target_urls(parse_table(name))
    return urls[0] if len(urls) == 1 else _in_use(settings, name, "").url


def tables_not_in_use(settings: Settings, name: str, live: TargetState) -> list[TargetState]:
    """Return the table's other tables than the ``live`` one: former ones, and copies of moves that
    have not ended."""
    urls = settings.target_urls(parse_table(name))
    others = (read_target(url, "", settings.warehouse_storage) for url in urls if url != live.url)
    return [one for one in others if _is_of(one, settings, name)]


def other_owner(target: TargetState, tail: Manifest, name: str) -> str | None:
    """Return the owner of a target that belongs to another history; None when it is ours."""
    if not target.exists or target.owner == (tail.pipeline, tail.incarnation, name):
        return None
    pipeline, incarnation, table = target.owner
    if not pipeline:
        return f"{target.url} holds a table that Tideline did not make"
    return f"{target.url} holds {table} of pipeline {pipeline}, incarnation {incarnation}"


def not_in_use(target: TargetState, name: str) -> str | None:
    """Return why nothing may be merged into what `target_of` returned; None where it may."""
    if target.in_use:
        return None
    if target.moved_to:
        return (
            f"its table was moved to {target.moved_to}, and no table of it is there: have the"
            f" settings name that place, or remove the table at {target.url} to have it made"
            f" again, or drop its property {MOVED_PROPERTY} to go on with what it holds"
        )
    return (
        f"{target.url} holds a copy of its table at {target.moving}, which is gone, and the move"
        f" did not end: remove it to have the table made again, or drop its property"
        f" {MOVING_PROPERTY} to go on with what it holds"
    )


def _app(tail: Manifest, name: str, table: TableState) -> str:
    return app_id(tail.pipeline, tail.incarnation, name, table.generation)


def _in_use(settings: Settings, name: str, app: str) -> TargetState:
    found: list[TargetState] = []
    for url in settings.target_urls(parse_table(name)):
        one = read_target(url, app, settings.warehouse_storage)
        ours = _is_of(one, settings, name)
        if ours and one.in_use:
            return one
        if ours or not found:  # What is not ours counts where a new one is to be.
            found.append(one)
    return _taken_over(found) or found[0]


def _taken_over(found: Iterable[TargetState]) -> TargetState | None:
    """Return the new table of a move that was killed between its last two commits."""
    tables = [one for one in found if one.exists]
    named = {one.moved_to for one in tables} - {""}
    return next((replace(one, pointed_to=True) for one in tables if one.url in named), None)


def _is_of(target: TargetState, settings: Settings, name: str) -> bool:
    pipeline, _, table = target.owner
    return target.exists and (pipeline, table) == (settings.pipeline, name)
