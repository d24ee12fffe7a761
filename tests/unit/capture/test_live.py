"""Settings that change while the worker runs."""

from __future__ import annotations

from typing import Any

import pytest

from capture.live import LOOK_S, LiveSettings
from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, make_settings

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
            make(), modified=lambda: self.written, load=self.load, clock=lambda: self.now
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


def test_without_a_file_nothing_changes() -> None:
    live: Any = LiveSettings(make())
    assert not live.changed()
