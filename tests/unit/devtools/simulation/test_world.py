"""The simulator's own pieces: time and tasks, commits and what is visible, the store's troubles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from devtools.simulation.database import Database
from devtools.simulation.log import DatabaseKind, SimulatedWatermark
from devtools.simulation.redis import Server, SimulatedRedis
from devtools.simulation.scheduler import Process, World
from devtools.simulation.storage import Bucket, Misfortune, SimulatedClient
from devtools.simulation.tables import ITEMS, NAMES, collated
from tideline.control import COMMAND_FIELD, REQUEST_FIELD
from tideline_capture.core.events import WatermarkKind


def run(*tasks: Callable[[World], None]) -> World:
    """Let the tasks run to their ends, in one process."""
    world, process = World(1), Process("p")
    for task in tasks:
        world.spawn(process, task.__name__, lambda task=task: task(world))  # type: ignore[misc]
    world.run(lambda: False)
    world.close()
    return world


# -- tasks -------------------------------------------------------------------------------------


def test_tasks_take_turns_by_their_moments() -> None:
    reported: list[str] = []

    def slow(world: World) -> None:
        world.sleep(2.0)
        reported.append(f"slow {world.now:.0f}")

    def quick(world: World) -> None:
        world.sleep(1.0)
        reported.append(f"quick {world.now:.0f}")

    run(slow, quick)
    assert reported == ["quick 1001", "slow 1002"]


def test_nothing_of_a_killed_process_runs_on() -> None:
    reported: list[str] = []

    def dies(world: World) -> None:
        assert world.current is not None
        try:
            world.kill(world.current.process)
            reported.append("after the kill")
        finally:
            if not world.closed:
                reported.append("finally")

    def other(world: World) -> None:
        world.sleep(1.0)
        reported.append("another task of it")

    run(dies, other)
    assert reported == []


def test_a_stopped_process_wakes_late() -> None:
    world, process, adversary = World(1), Process("p"), Process("a")
    woke: list[float] = []

    def sleeps() -> None:
        world.sleep(1.0)
        woke.append(world.now)

    def stops() -> None:
        world.freeze(process)
        world.sleep(5.0)
        world.thaw(process)

    world.spawn(process, "sleeps", sleeps)
    world.spawn(adversary, "stops", stops)
    world.run(lambda: False)
    assert woke == [1005.0]


# -- the source --------------------------------------------------------------------------------


def lagging(world: World, *lags: float, kind: DatabaseKind = DatabaseKind.POSTGRES) -> Database:
    """A database whose commits become visible after these times, one after the other."""
    left = list(lags)
    return Database(world, kind, lambda: left.pop(0))


def insert(database: Database, key: int) -> None:
    work = database.begin()
    assert database.lock(work, ITEMS, (key,))
    database.write(work, ITEMS, "c", (key,), {"id": key, "v": "x"})
    database.commit(work)


def test_a_commit_is_in_the_log_before_it_is_visible() -> None:
    world = World(1)
    database = lagging(world, 5.0)
    insert(database, 1)
    xid = database.transactions[0].txid
    assert database.end == 1
    assert not database.tables[ITEMS].rows
    database.write_watermark(SimulatedWatermark(WatermarkKind.LOW, "t", 0))
    world.run(lambda: database.snapshot().xmax > xid + 1)
    assert xid in database.snapshot().running
    world.run(lambda: False)
    assert (1,) in database.tables[ITEMS].rows
    assert not database.snapshot().running


def test_a_key_is_locked_until_its_change_is_visible() -> None:
    world = World(1)
    database = lagging(world, 5.0)
    insert(database, 1)
    other = database.begin()
    assert not database.lock(other, ITEMS, (1,))
    world.run(lambda: False)
    assert database.lock(other, ITEMS, (1,))


@pytest.mark.parametrize("ordered", [True, False])
def test_mysql_shows_commits_in_the_order_of_its_log(ordered: bool) -> None:
    world = World(1)
    database = lagging(world, 5.0, 0.0, kind=DatabaseKind.MYSQL)
    database.order_commits = ordered
    insert(database, 1)
    insert(database, 2)
    world.run(lambda: bool(database.tables[ITEMS].rows))
    assert ((1,) in database.tables[ITEMS].rows) is ordered


def test_a_savepoint_gives_its_versions_back() -> None:
    database = lagging(World(1), 0.0)
    work = database.begin()
    database.lock(work, ITEMS, (1,))
    savepoint = database.savepoint(work)
    database.write(work, ITEMS, "c", (1,), {"id": 1, "v": "a"})
    database.roll_back_to(work, savepoint)
    database.write(work, ITEMS, "c", (1,), {"id": 1, "v": "b"})
    assert [entry.ver for entry in work.entries] == [1]
    assert [entry.ver for entry in database.rolled_back] == [1]


def test_keys_have_an_order_that_is_not_that_of_their_characters() -> None:
    keys = [("alpha0",), ("Bravo0",), ("charlie0",)]
    assert sorted(keys, key=collated) == keys
    assert sorted(keys) != keys
    assert lagging(World(1)).tables[NAMES].ordered() == []


# -- the store ---------------------------------------------------------------------------------


def put(fate: Misfortune, held: dict[str, bytes] | None = None) -> tuple[dict[str, bytes], str]:
    """The objects after one create-only PUT that meets ``fate``, and the error that it raised."""
    bucket = Bucket(dict(held or {}))
    raised = ""

    def task(world: World) -> None:
        nonlocal raised
        client = SimulatedClient(world, bucket, lambda kind, key: fate)
        try:
            client.put("k", b"mine", mode="create", use_multipart=False)
        except (AlreadyExistsError, GenericError) as error:
            raised = type(error).__name__

    run(task)
    return bucket.objects, raised


@pytest.mark.parametrize(
    ("fate", "there", "error"),
    [
        (Misfortune(), True, ""),
        (Misfortune(error="kind: Timeout"), True, "GenericError"),
        (Misfortune(error="kind: Timeout", effect=False), False, "GenericError"),
        (Misfortune(error="status code: 503", effect=False, again_s=3.0), True, "GenericError"),
        (Misfortune(taken=True), False, "AlreadyExistsError"),
    ],
)
def test_a_put_meets_its_fate(fate: Misfortune, there: bool, error: str) -> None:
    objects, raised = put(fate)
    assert ("k" in objects, raised) == (there, error)


def test_what_is_there_is_not_created_again() -> None:
    assert put(Misfortune(), {"k": b"theirs"}) == ({"k": b"theirs"}, "AlreadyExistsError")


# -- redis -------------------------------------------------------------------------------------


def claim(client: SimulatedRedis, consumer: str, idle_ms: int) -> list[bytes]:
    given = ("worker", consumer, 64, idle_ms, "0-0", 100, REQUEST_FIELD, COMMAND_FIELD)
    return [entry[2] for entry in client.eval("", 1, "stream", *given)[1]]


def test_an_entry_is_claimed_once_until_it_is_idle_or_removed() -> None:
    world = World(1)
    client = SimulatedRedis(Server(world))
    client.xadd("stream", {"request": b"one"})
    assert claim(client, "a", 1_000) == [b"one"]
    assert claim(client, "b", 1_000) == []
    world.now += 2
    assert claim(client, "b", 1_000) == [b"one"]
    assert claim(client, "c", 0) == [b"one"]
    entry = next(iter(client._server.content.stream))
    client.forget((entry,))
    assert claim(client, "c", 0) == []


def test_a_failover_loses_what_the_replica_lacks() -> None:
    server = Server(World(1))
    client = SimulatedRedis(server)
    client.set("k", b"1")
    replica = server.replica()
    client.set("k", b"2")
    server.fail_over(replica)
    assert client.get("k") == b"1"
