"""What a rebuild keeps of the parts, when it fails, is late, is killed, is tried again."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import History, Shaped, schema_of
from tests.unit.planner.test_planning_modes import apply as stands
from tests.unit.planner.test_rebuild_steps import T, row, taken
from tideline.contract.errors import Fenced, Misconfigured, Unavailable
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.planner import begin_rebuild, next_step, rebuilds
from tideline.planner.consumers import known_consumers, left_behind
from tideline.planner.garbage import Garbage
from tideline.planner.rebuild_steps import shadow_settings
from tideline.store.objects import open_store


def consumers(history: History) -> list[str]:
    found = known_consumers(history.settings, open_store(history.settings.store))
    return [one.name for one in found if one.name.startswith("the rebuild")]


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    for key in range(1, 6):
        made.commit(row(key))
    stands(made, 6)
    return made


def test_nothing_where_nothing_can_be_built(history: History) -> None:
    low = history.last_seq
    history.commit(row(1, "r"), deletes_before=[(T, low)])
    stands(history, 7)
    first = history.chain.read(2)
    assert first is not None
    history.part_path(first.manifest.parts[0].key).unlink()
    record = begin_rebuild(history.settings, T, mode=Mode.HISTORY)
    step = next_step(history.settings, record)
    assert step is not None
    assert "parts up to manifest 2 are removed" in step.delayed[T]
    assert consumers(history) == []


def test_all_that_it_needs_once_something_is_built(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = begin_rebuild(history.settings, T, mode=Mode.HISTORY)

    def fails(*given: Any) -> Plan:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(rebuilds, "step", fails)
        with pytest.raises(Unavailable, match="away"):
            next_step(history.settings, record)
        assert consumers(history) == []
        stands(history, 3, settings=shadow_settings(history.settings, record), build=1)
        with pytest.raises(Unavailable, match="away"):
            next_step(history.settings, record)
    assert len(consumers(history)) == 1


def test_nothing_of_a_generation_that_is_over(history: History) -> None:
    record = begin_rebuild(history.settings, T)
    taken(history, record)
    stands(history, 3, settings=shadow_settings(history.settings, record), build=1)
    assert len(consumers(history)) == 1
    history.commit(row(9), states={T: {"generation": 1, "generation_manifest": 6}})
    with pytest.raises(Unavailable, match="began generation 1"):
        next_step(history.settings, record)
    assert consumers(history) == []


def test_nothing_where_the_table_is_gone_from_the_warehouse(history: History) -> None:
    record = begin_rebuild(history.settings, T)
    taken(history, record)
    path = Path(history.target(T).removeprefix("file://"))
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(Misconfigured, match="nothing is to be rebuilt"):
        next_step(history.settings, record)
    assert consumers(history) == []


def test_who_is_late_leaves_the_newer_ones_place(history: History) -> None:
    """Both begin their steps at once: the older one has looked before the newer one came."""
    old = begin_rebuild(history.settings, T)
    new = begin_rebuild(history.settings, T, restart=True)
    taken(history, new)
    with pytest.raises(Fenced, match="took over"):
        next_step(history.settings, old)
    (name,) = consumers(history)
    assert name.endswith(f"/{new.build:06d}/public/t")


def test_who_is_late_leaves_nothing_of_one_that_is_done(history: History) -> None:
    old = begin_rebuild(history.settings, T)
    new = begin_rebuild(history.settings, T, restart=True)
    taken(history, new)
    stands(history, 6, build=new.build)
    assert next_step(history.settings, new) is None
    with pytest.raises(Fenced, match="took over"):
        next_step(history.settings, old)
    assert consumers(history) == []


def test_one_that_was_killed_keeps_them_until_nobody_has_gone_on_with_it(history: History) -> None:
    settings, store = history.settings, open_store(history.settings.store)
    record = begin_rebuild(settings, T)
    taken(history, record)
    stands(history, 3, settings=shadow_settings(settings, record), build=1)
    days = settings.retention.plans_days
    now = datetime.now(UTC)
    (entry,) = left_behind(settings, store, now + timedelta(days=1))
    Garbage(settings, store).collect(now + timedelta(days=days - 0.1))
    assert len(consumers(history)) == 1
    # It is gone on with: that counts from then on.
    path = history.root / "store" / entry.key
    long_ago = time.time() - (days + 1) * 86_400
    os.utime(path, (long_ago, long_ago))
    assert len(left_behind(settings, store, now - timedelta(days=days))) == 1
    taken(history, record)
    assert left_behind(settings, store, now - timedelta(days=days)) == []
    later = now + timedelta(days=days + 0.1)
    Garbage(settings, store).collect(later, dry_run=True)
    assert len(consumers(history)) == 1
    Garbage(settings, store).collect(later)
    assert consumers(history) == []


def test_what_is_tried_again_joins_what_it_began(history: History) -> None:
    """Also where its first try was killed before, or after, there was a record of it."""
    settings = history.settings
    before = begin_rebuild(settings, T)
    first = begin_rebuild(settings, T, restart=True, asked="dag/run/task")
    assert first.build == before.build + 1
    assert begin_rebuild(settings, T, restart=True, asked="dag/run/task") == first
    stands(history, 6, build=first.build)
    assert begin_rebuild(settings, T, restart=True, asked="dag/run/task") == first
    assert next_step(settings, first) is None
    assert begin_rebuild(settings, T, restart=True, asked="another").build == first.build + 1
