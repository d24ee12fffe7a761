"""Settings that change while the worker runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline.settings import Settings, load_settings, make_settings
from tideline_capture.live import LOOK_S, LiveSettings, SettingsFile

REQUIRED = {
    "pipeline": "shop",
    "store": {"url": "memory://"},
    "warehouse": {"url": "file:///warehouse"},
}


def make(pipeline: str = "shop", **sections: dict[str, Any]) -> Settings:
    source = {"url": "postgresql://tideline@db/shop", **sections.get("source", {})}
    return make_settings({**REQUIRED, "pipeline": pipeline, **sections, "source": source})


class File:
    """A settings file with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written = 1.0
        self.content: Settings | Misconfigured = make()
        self.live = LiveSettings(
            make(),
            SettingsFile(lambda: self.written, self.load),
            clock=lambda: self.now,
        )

    def load(self) -> Settings:
        if isinstance(self.content, Misconfigured):
            raise self.content
        return self.content

    def write(self, content: Settings | Misconfigured) -> bool:
        """Whether the settings changed."""
        self.content = content
        self.written += 1
        self.now += LOOK_S
        return self.live.changed()


def test_tables_and_limits_change() -> None:
    file = File()
    assert file.write(make(source={"tables": ["public.a"]}, capture={"chunk_rows": 7}))
    assert file.live.current.source.tables == ("public.a",)
    assert file.live.current.capture.chunk_rows == 7
    assert not file.live.changed()


@pytest.mark.parametrize(
    "content",
    [
        make(),
        make(pipeline="another"),
        Misconfigured("no"),
        make(source={"slot": "x"}),
        make(capture={"heartbeat_s": 1}),
    ],
)
def test_what_changes_nothing(content: Settings | Misconfigured) -> None:
    file = File()
    assert not file.write(content)
    assert file.live.current == make()


def test_a_file_with_mistakes_is_read_again_once_it_is_mended() -> None:
    file = File()
    assert not file.write(Misconfigured("no"))
    assert file.write(make(source={"exclude": ["public.b"]}))


def test_the_file_is_looked_at_only_now_and_then() -> None:
    file = File()
    file.content = make(source={"tables": ["public.a"]})
    file.written += 1
    assert not file.live.changed()
    file.now += LOOK_S
    assert file.live.changed()


def test_what_is_said_of_tables_changes() -> None:
    file = File()
    assert file.write(make(tables={"*.bag": {"keyless": "counted"}}))
    assert file.live.current.of_table(TableId("public", "bag")).keyless == "counted"


def test_what_no_session_goes_by_begins_none() -> None:
    """A copy in one snapshot would start again with it."""
    file = File()
    retention, slo, merge = {"parts_days": 3.0}, {"window_s": 77.0}, {"parts_max": 5}
    assert not file.write(make(retention=retention, slo=slo, merge=merge))
    assert file.live.current.retention.parts_days == 3.0
    assert file.live.current.slo.window_s == 77.0


def test_what_needs_a_restart_is_named_once_and_never_its_value() -> None:
    file = File()
    secret = {"access_key_id": "AK", "secret_access_key": "hush", "url": "s3://other/place"}
    content = make(store=secret, capture={"metrics_port": 9_999, "chunk_rows": 5})
    with capture_logs() as logs:
        assert file.write(content)
        assert not file.write(content)
    keys = ("store.url", "store.access_key_id", "store.secret_access_key", "capture.metrics_port")
    assert file.live.restart_for == keys
    (entry,) = logs
    assert (entry["keys"], "restart the worker" in entry["event"]) == (list(keys), True)
    assert not any(value in str(logs) for value in ("hush", "AK'", "other/place", "9999"))
    file.write(make(capture={"chunk_rows": 5}))
    assert not file.live.restart_for


def test_a_change_before_the_first_look_is_seen() -> None:
    """The settings were read a moment before the file was looked at."""
    file = File()
    file.content = make(source={"tables": ["public.a"]})
    file.now += LOOK_S
    assert file.live.changed()


def test_without_a_file_nothing_changes() -> None:
    live: Any = LiveSettings(make(), clock=lambda: 0.0)
    assert not live.changed()


@pytest.mark.parametrize("value", ["[" * 5_000, "1" * 5_000, '"\\ud800"', "0x" + "f" * 5_000])
def test_a_file_that_no_parser_takes_changes_nothing(value: str, tmp_path: Path) -> None:
    """Whatever an editor, or someone with ill will, has left there: the worker goes on."""
    path, now = tmp_path / "tideline.toml", [0.0]
    live = LiveSettings(
        make(),
        SettingsFile(lambda: now[0], lambda: load_settings(path)),
        clock=lambda: now[0],
    )
    path.write_text(f"pipeline = {value}")
    now[0] += LOOK_S
    with capture_logs() as logs:
        assert not live.changed()
    assert [line["event"] for line in logs] == [
        "the settings file has mistakes: nothing of it is used"
    ]
    assert live.current == make()
