"""Parquet files as an output: each event once, whoever was killed, moved back or comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.parquet_files import ParquetOutput

BEGINNING = ChainPosition("one", 0, 0)
A, B = "public.a", 'public."b/../c"'


def event(seq: int, table: str = A, part: int = 0) -> ChangeEvent:
    return ChangeEvent(seq, part, table, "u", 7, 1_700_000_000_000_001, b'{"id":1}', b'{"n":1}')


def at(seq: int) -> ChainPosition:
    return ChainPosition("one", seq, seq)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., ParquetOutput]]:
    made = []

    def make(seq: int = 0) -> ParquetOutput:
        files = {"folder": str(tmp_path), "format": "parquet"}
        settings = PublishSettings.model_validate({"output": "files", "files": files})
        context = OutputContext("shop", "e", settings, RealSystem(), lambda _: True)
        made.append(ParquetOutput(context))
        made[-1].open(at(seq))
        return made[-1]

    yield make
    for one in made:
        one.close()


Opened = Callable[..., ParquetOutput]


def publish(output: ParquetOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(at(events[-1].seq))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


def seqs(folder: Path) -> list[int]:
    found = [pq.read_table(path) for path in sorted(folder.glob("public.a/*"))]
    return [seq for table in found for seq in table.column("seq").to_pylist()]


def test_a_file_has_the_events_and_their_sequences_as_its_name(
    opened: Opened, tmp_path: Path
) -> None:
    keyless = ChangeEvent(3, 0, A, "t", 0, 0, None, b"{}")
    publish(opened(), event(1), event(2, part=1), keyless)
    assert names(tmp_path)[-1] == f"public.a/{1:020d}-{3:020d}.parquet"
    rows = pq.read_table(next(tmp_path.glob("public.a/*"))).to_pylist()
    assert [(one["seq"], one["part"], one["op"]) for one in rows] == [
        *((1, 0, "u"), (2, 1, "u")),
        (3, 0, "t"),
    ]
    assert rows[0] == {
        "seq": 1,
        "part": 0,
        "op": "u",
        "tx": 7,
        "at": datetime(2023, 11, 14, 22, 13, 20, 1, UTC),
        "key": '{"id":1}',
        "value": '{"n":1}',
    }
    assert rows[2]["key"] is None


def test_each_table_has_a_folder_whatever_its_name(opened: Opened, tmp_path: Path) -> None:
    publish(opened(), event(1), event(2, B))
    folders = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert folders == {"public.a", "public.b_x2f__x2e__x2e__x2f_c"}


def test_what_is_behind_the_position_is_removed(opened: Opened, tmp_path: Path) -> None:
    output = opened()
    publish(output, event(1), event(2))
    publish(output, event(3), event(4))
    publish(opened(2), event(3), event(4), event(5))
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]


def test_a_file_across_the_position_is_cut(opened: Opened, tmp_path: Path) -> None:
    """As after a publisher was moved back."""
    publish(opened(), event(1), event(2), event(2, part=1), event(5))
    opened(3)
    assert seqs(tmp_path) == [1, 2, 2]
    assert names(tmp_path)[-1] == f"public.a/{1:020d}-{2:020d}.parquet"


def test_a_file_that_was_cut_before_a_kill_is_cut_again(opened: Opened, tmp_path: Path) -> None:
    publish(opened(), event(1), event(2), event(5))
    whole = next(tmp_path.glob("public.a/*"))
    raw = whole.read_bytes()
    opened(3)
    whole.write_bytes(raw)
    opened(3)
    assert seqs(tmp_path) == [1, 2]


def test_nothing_appears_that_is_not_complete(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = opened()

    def write_half(table: Any, file: Any, **options: Any) -> None:
        file.write(b"PAR1 half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", write_half)
    with pytest.raises(Unavailable, match="No space left"):
        publish(output, event(1))
    assert list(tmp_path.glob("public.a/*")) == []
    monkeypatch.undo()
    publish(opened(), event(1))
    assert seqs(tmp_path) == [1]
    assert len(list(tmp_path.glob(".writing-*/*"))) == 0


def test_one_that_was_taken_over_adds_nothing(opened: Opened, tmp_path: Path) -> None:
    first = opened()
    first.write([event(1), event(2)])
    second = opened()
    with pytest.raises(Unavailable):
        first.settle(at(2))
    publish(second, event(1), event(2), event(3))
    assert seqs(tmp_path) == [1, 2, 3]


def test_one_that_was_taken_over_while_it_wrote_adds_nothing(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written, and has not appeared yet."""
    first = opened()
    write_table = pq.write_table

    def overtaken(table: Any, file: Any, **options: Any) -> None:
        write_table(table, file, **options)
        monkeypatch.undo()
        publish(opened(), event(1), event(2), event(3))

    monkeypatch.setattr(pq, "write_table", overtaken)
    with pytest.raises(Unavailable):
        publish(first, event(1), event(2))
    assert seqs(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("name", ["mine.parquet", f"{1:020d}-{9:020d}.parquet"])
def test_a_file_of_others_stays(opened: Opened, tmp_path: Path, name: str) -> None:
    (tmp_path / "public.a").mkdir()
    (tmp_path / "public.a" / name).write_text("mine")
    with pytest.raises(CorruptData, match="move it out"):
        opened(3)
    assert (tmp_path / "public.a" / name).read_text() == "mine"
