"""Both systems, this process's and the simulator's, do what `System` says."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from devtools.simulation.scheduler import Process, World
from devtools.simulation.system import SequentialSystem, SimulatedSystem
from tideline.system import Empty, Queue, RealSystem, System

Body = Callable[[System], None]
Run = Callable[[Body], None]
SOON_S, PATIENCE_S = 0.02, 60.0


def really(body: Body) -> None:
    body(RealSystem())


def simulated(body: Body, kind: type[SimulatedSystem] = SimulatedSystem) -> None:
    world, process = World(1), Process("p")
    system, ended = kind(world, process, random.Random(1)), []

    def main() -> None:
        body(system)
        ended.append(True)

    world.spawn(process, "main", main)
    world.run(lambda: bool(ended))
    world.close()
    assert ended, "a task waits for ever"


@pytest.fixture(params=[really, simulated], ids=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_an_event_is_waited_for(run: Run) -> None:
    def body(system: System) -> None:
        event = system.event()
        began = system.monotonic()
        assert not event.wait(SOON_S)
        assert system.monotonic() >= began + SOON_S
        system.thread(event.set, name="t").start()
        assert event.wait(PATIENCE_S)
        assert event.is_set()
        event.clear()
        assert not event.is_set()

    run(body)


def test_a_queue_gives_in_order_and_is_empty_in_time(run: Run) -> None:
    def body(system: System) -> None:
        queue: Queue[int] = system.queue()
        with pytest.raises(Empty):
            queue.get(timeout=SOON_S)

        def put() -> None:
            queue.put(1)
            queue.put(2)

        thread = system.thread(put, name="t")
        thread.start()
        assert [queue.get(), queue.get(timeout=PATIENCE_S)] == [1, 2]
        thread.join()
        queue.put(3)
        assert (queue.empty(), queue.qsize()) == (False, 1)

    run(body)


def test_a_condition_wakes_who_waits(run: Run) -> None:
    def body(system: System) -> None:
        condition, done = system.condition(), []

        def change() -> None:
            with condition:
                done.append(1)
                condition.notify_all()

        with condition:
            system.thread(change, name="t").start()
            end = system.monotonic() + PATIENCE_S
            while not done and system.monotonic() < end:
                condition.wait(PATIENCE_S)
        assert done

    run(body)


def test_a_thread_lives_until_its_end(run: Run) -> None:
    def body(system: System) -> None:
        release = system.event()

        def run_on() -> None:
            release.wait(PATIENCE_S)

        thread = system.thread(run_on, name="t")
        assert not thread.is_alive()
        thread.start()
        thread.join(SOON_S)
        assert thread.is_alive()
        release.set()
        thread.join()
        assert not thread.is_alive()

    run(body)


def test_a_pool_runs_calls_side_by_side(run: Run) -> None:
    def body(system: System) -> None:
        release = system.event()

        def wait(number: int) -> int:
            release.wait(PATIENCE_S)
            return number

        def fail() -> None:
            raise ValueError("no")

        with system.pool(3, name="p") as pool:
            calls = [pool.submit(wait, 1), pool.submit(wait, 2)]
            assert not pool.ended(calls, timeout_s=SOON_S)
            failed = pool.submit(fail)
            release.set()
            assert pool.ended(calls, timeout_s=PATIENCE_S)
            assert [call.result() for call in calls] == [1, 2]
            with pytest.raises(ValueError, match="no"):
                failed.result()
            assert list(pool.map(wait, [3, 4])) == [3, 4]
            pool.abandon()

    run(body)


def test_calls_at_once_return_or_raise(run: Run) -> None:
    def body(system: System) -> None:
        assert system.at_once([lambda: 1, lambda: 2]) == [1, 2]

        def fail() -> int:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            system.at_once([lambda: 1, fail])

    run(body)


def test_calls_at_once_run_side_by_side() -> None:
    """Each waits for the other: one after the other they would not end."""
    barrier = threading.Barrier(2, timeout=PATIENCE_S)
    assert sorted(RealSystem().at_once([barrier.wait, barrier.wait])) == [0, 1]


def test_ids_differ_and_clocks_go_on(run: Run) -> None:
    def body(system: System) -> None:
        ids = {system.new_id() for _ in range(100)}
        assert len(ids) == 100
        assert {len(one) for one in ids} == {32}
        now, wall = system.monotonic(), system.wall_us()
        system.thread(lambda: system.pause(SOON_S), name="t").start()
        system.pause(SOON_S)
        assert system.monotonic() > now
        assert system.wall_us() > wall > 1_600_000_000_000_000

    run(body)


def test_a_lock_that_is_held_during_a_wait_is_found_out() -> None:
    def body(system: System) -> None:
        lock, errors = system.lock(), []

        def other() -> None:
            try:
                with lock:
                    pass
            except RuntimeError as error:
                errors.append(str(error))

        with lock:
            thread = system.thread(other, name="t")
            thread.start()
            thread.join()
        assert errors == ["a task waited while it held a lock"]

    simulated(body)


def test_a_sequential_pool_runs_what_is_wanted() -> None:
    def body(system: System) -> None:
        ran: list[int] = []
        with system.pool(2, name="p") as pool:
            results = pool.map(ran.append, [1, 2])
            assert ran == []
            next(iter(results))
        assert ran == [1]

    simulated(body, SequentialSystem)
