"""The emulator's environment is built once for each lock, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devtools.services import bigquery
from tideline.contract.errors import Unavailable


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; the first one makes a file in the folder that it is given."""
    commands: list[list[str]] = []

    def fetch(
        what: str, command: Sequence[str], work: Path, environment: Mapping[str, str]
    ) -> None:
        commands.append([Path(command[0]).name, *command[1:]])
        if "SETUP_LOCK" in environment:
            Path(command[1], "made").touch()

    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bigquery, "fetch", fetch)
    return commands


def test_it_is_built_once(built: list[list[str]]) -> None:
    assert not bigquery.emulator_is_there()
    root = bigquery.emulator_root()
    assert (root / "made").is_file()
    assert bigquery.emulator_is_there()
    assert bigquery.emulator_root() == root
    assert [command[0] for command in built] == ["setup", "python"]
    assert {"bqemulator==1.4.0", "duckdb==1.5.5"} <= set(built[0])
    assert not [word for word in built[0] if "#" in word]


def test_another_lock_has_another_environment(
    built: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bigquery.emulator_root()
    (tmp_path / "requirements").mkdir()
    for end in ("in", "txt"):
        name = f"requirements/bigquery.{end}"
        (tmp_path / name).write_text((bigquery.ROOT / name).read_text() + "\n# more\n")
    monkeypatch.setattr(bigquery, "ROOT", tmp_path)
    assert not bigquery.emulator_is_there()
    assert bigquery.emulator_root() != first


def test_one_that_could_not_be_built_leaves_nothing(
    built: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("no packages")

    monkeypatch.setattr(bigquery, "fetch", fail)
    with pytest.raises(Unavailable):
        bigquery.emulator_root()
    assert list((tmp_path / "cache").iterdir()) == []
