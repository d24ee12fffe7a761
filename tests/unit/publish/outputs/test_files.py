"""Files of JSON lines: what a worker that was taken over does when it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tideline.contract.errors import CorruptData, Fenced
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.files import FilesOutput


class Hold:
    """Whether a worker still has the publisher."""

    lost = False

    def __call__(self, seconds: float) -> bool:
        if self.lost:
            raise Fenced("another worker has it")
        return True


def opened(folder: Path, seq: int, hold: Callable[[float], bool], **given: Any) -> FilesOutput:
    files = {"output": "files", "files": {"folder": str(folder)}, **given}
    settings = PublishSettings.model_validate(files)
    output = FilesOutput(OutputContext("shop", "e", settings, RealSystem(), hold))
    output.open(ChainPosition("one", seq, seq))
    return output


def event(seq: int, value: bytes = b'{"seq":%d}') -> ChangeEvent:
    return ChangeEvent(seq, 0, "public.a", "u", 7, 0, None, value % seq)


def publish(output: FilesOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(ChainPosition("one", 1, events[-1].seq))


def lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("at", ["write", "settle", "close"])
def test_one_that_comes_back_after_a_takeover_adds_nothing(tmp_path: Path, at: str) -> None:
    hold = Hold()
    first = opened(tmp_path, 0, hold)
    publish(first, event(1))
    first.write([event(2)])
    second = opened(tmp_path, 1, Hold())
    hold.lost = True
    publish(second, event(2), event(3))
    if at == "write":
        with pytest.raises(Fenced):
            first.write([event(3)])
    elif at == "settle":
        with pytest.raises(Fenced):
            first.settle(ChainPosition("one", 1, 2))
    first.close()
    assert lines(tmp_path) == ['{"seq":1}', '{"seq":2}', '{"seq":3}']


def test_lines_of_cloudevents_are_cut_by_their_sequences(tmp_path: Path) -> None:
    value = b'{"id":"x","sequence":"%020d"}'
    output = opened(tmp_path, 0, Hold(), format="cloudevents")
    publish(output, *[event(seq, value) for seq in range(1, 6)])
    output.close()
    opened(tmp_path, 3, Hold(), format="cloudevents").close()
    assert len(lines(tmp_path)) == 3


@pytest.mark.parametrize("line", ["text", '{"sequence":"x"}', "{}"])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / f"{1:020d}.jsonl").write_text(f"{line}\n")
    with pytest.raises(CorruptData, match="a line that is no event"):
        opened(tmp_path, 3, Hold())
