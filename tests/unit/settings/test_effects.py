"""Every setting is in one of three classes, and the worker keeps to what they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.core import SETTINGS
from tideline.settings import PublishSettings, Settings, TableSettings
from tideline.settings.base import Effect, Section
from tideline.settings.effects import effects, followed, keys_of, section_of, waiting

ROOT = Path(__file__).parents[3]
RESTART = {
    "pipeline",
    *(f"source.{key}" for key in ("url", "slot", "publication", "messages")),
    *(f"source.{key}" for key in ("read_only", "watermark_database")),
    *(f"store.{key}" for key in type(SETTINGS.store).model_fields),
    *(f"control.{key}" for key in type(SETTINGS.control).model_fields),
    *(f"capture.{key}" for key in ("heartbeat_s", "takeover_after_s", "request_claim_s")),
    *(f"capture.rollup_{what}_bytes_max" for what in ("part", "file")),
    "capture.metrics_address",
    "capture.metrics_port",
}
COMMANDS = ("warehouse", "merge", "openlineage", "maintain", "aggregates", "publish")
BY_NAME = ("tables.", "aggregates.", "publish.")
PLAIN = sorted(key for key in effects() if not key.startswith(BY_NAME))


def test_what_needs_a_restart_is_known() -> None:
    found = effects()
    assert {key for key, effect in found.items() if effect is Effect.RESTART} == RESTART
    commands = {key for key, effect in found.items() if effect is Effect.COMMAND}
    assert {key.partition(".")[0] for key in commands} == set(COMMANDS)
    of_tables = {key: effect for key, effect in found.items() if key.startswith("tables.")}
    assert set(of_tables.values()) == {Effect.LIVE}
    assert {"tables.keyless", "tables.on_change.retype"} <= set(of_tables)
    assert len(of_tables) == len(list(keys_of(TableSettings)))


def test_a_section_must_say_when_its_keys_count() -> None:
    with pytest.raises(TypeError, match="when its keys count"):
        type("Silent", (Section,), {})


def other(key: str) -> Settings:
    """The settings with something else under ``key``."""
    name, _, within = key.partition(".")
    if not within:
        return SETTINGS.model_copy(update={name: object()})
    section = getattr(SETTINGS, name).model_copy(update={within: object()})
    return SETTINGS.model_copy(update={name: section})


@pytest.mark.parametrize("key", PLAIN)
def test_a_worker_follows_a_key_or_names_it(key: str) -> None:
    read = other(key)
    if key in RESTART:
        assert (followed(SETTINGS, read), waiting(SETTINGS, read)) == (SETTINGS, (key,))
    else:
        assert (followed(SETTINGS, read), waiting(SETTINGS, read)) == (read, ())


def test_tables_are_followed_as_a_whole() -> None:
    read = SETTINGS.model_copy(update={"tables": {"*.*": TableSettings(keyless="counted")}})
    assert (followed(SETTINGS, read), waiting(SETTINGS, read)) == (read, ())


def test_publishers_are_followed_as_a_whole() -> None:
    read = SETTINGS.model_copy(update={"publish": {"events": PublishSettings(output="null")}})
    assert (followed(SETTINGS, read), waiting(SETTINGS, read)) == (read, ())


def chains(tree: ast.AST, root: str) -> Iterator[tuple[str, ...]]:
    """The attributes that are read of the name ``root``, or of an object's ``_root``:
    ``("capture", "heartbeat_s")``."""
    inner = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        names: list[str] = []
        at: Any = node
        while isinstance(at, ast.Attribute):
            names.insert(0, at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id == "self" and names[0] == f"_{root}":
            names, at = names[1:], ast.Name(root)
        if names and isinstance(at, ast.Name) and at.id == root:
            yield tuple(names)


def test_what_outlives_sessions_is_made_of_settings_that_need_a_restart() -> None:
    """Only `LiveSettings.current` may be read of for the others: ``settings`` are those of the
    worker's start."""
    module = ast.parse((ROOT / "capture" / "tideline_capture" / "app.py").read_text())
    read = {".".join(names[:2]) for names in chains(module, "settings")}
    assert {"store", "control", "capture.heartbeat_s", "capture.takeover_after_s"} <= read
    for key in read:
        section = section_of(Settings.model_fields[key]) if "." not in key else None
        keys = [key] if section is None else [f"{key}.{one}" for one, _, _ in keys_of(section)]
        assert set(keys) <= RESTART, f"a worker's start reads {key}, which a worker follows"


def test_the_worker_reads_nothing_that_is_for_commands() -> None:
    words = re.compile(rf"(settings|current(\(\))?)\.({'|'.join(COMMANDS)})\b")
    files = sorted((ROOT / "capture").rglob("*.py"))
    assert len(files) > 50
    assert [path.name for path in files if words.search(path.read_text())] == []
