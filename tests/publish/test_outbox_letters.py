"""Rows and messages of an outbox that are no events: dead letters, each there once over kills; or
the publisher stops at the first, and leaves out nothing once it has dead letters."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.outbox import OUTBOX, insert, outbox_schema
from tests.fixtures.parts import Logged, LoggedEvent, Shaped
from tests.fixtures.publishing import NAME
from tests.fixtures.settings import as_toml
from tests.publish.outputs import FilesCase
from tests.publish.rig import IDLE_S, Rig
from tideline_console.errors import EXIT_MISCONFIGURED


class LettersRig(Rig):
    """A rig of an outbox of which every third event is none."""

    def __init__(self, root: Path, **outbox: Any) -> None:
        chosen = {"table": OUTBOX, "messages": ["outbox"], **outbox}
        self.files = FilesCase(root / "events")
        super().__init__(root, self.files, outbox=chosen)
        self.history.commit(Shaped(outbox_schema()))
        self.good: list[int] = []
        self.bad: list[int] = []

    def _changes(self, number: int, rows: int) -> list[LoggedEvent]:
        return [self._event(self.history.last_seq + at) for at in range(1, rows + 1)]

    def _event(self, seq: int) -> LoggedEvent:
        if seq % 3:
            self.good.append(seq)
            return insert(str(seq))
        self.bad.append(seq)
        return insert(str(seq), type=None) if seq % 2 else Logged("outbox", b"\xffno JSON")

    def check(self) -> None:
        assert [one.order[0] for one in self.files.outbox()] == self.good


def letters(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.iterdir()
    assert path.name == f"shop.{NAME}.outbox.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("point", ["after_write", "after_settle", "after_log"])
def test_each_is_in_the_dead_letters_once_whenever_the_publisher_is_killed(
    tmp_path: Path, point: str
) -> None:
    folder = tmp_path / "letters"
    rig = LettersRig(tmp_path, on_invalid="dead_letter", dead_letter_folder=str(folder))
    for count in (1, 2):
        rig.publish_until_killed(point, count)
    rig.publish()
    rig.check()
    found = letters(folder)
    assert [one["seq"] for one in found] == rig.bad
    assert rig.entry().dead_letters == len(rig.bad)
    assert {(one["table"], one["reason"]) for one in found} == {
        (OUTBOX, "type NULL or empty"),
        ("_tl_messages.outbox", "its content is no JSON object"),
    }
    rows = [one["event"] for one in found if one["table"] == OUTBOX]
    assert all(row["payload"] == '{"total": 9.50}' and row["type"] is None for row in rows)


def test_without_them_it_stops_and_leaves_out_nothing_once_it_has_them(tmp_path: Path) -> None:
    rig = LettersRig(tmp_path)
    rig.commit(1, rows=6)
    worker = rig.worker(IDLE_S)
    assert worker.wait() == EXIT_MISCONFIGURED, worker.output()
    assert f"change {rig.bad[0]} of the outbox" in worker.output()
    assert "outbox.on_invalid" in worker.output()
    assert "9.50" not in worker.output()
    folder = tmp_path / "letters"
    values = tomllib.loads(rig.config.read_text())
    chosen = {"on_invalid": "dead_letter", "dead_letter_folder": str(folder)}
    values["publish"][NAME]["outbox"] |= chosen
    rig.config.write_text(as_toml(values))
    rig.publish()
    rig.check()
    assert [one["seq"] for one in letters(folder)] == rig.bad
