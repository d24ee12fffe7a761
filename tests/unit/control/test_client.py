"""Following a request: by its answers, and by the chain where Redis has none, or a stale one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from tests.unit.contract.documents import first_manifest
from tideline.contract.answers import open_answers, recorded_answer
from tideline.contract.errors import Unavailable
from tideline.contract.open_state import OpenRequest, OpenState, TableDump
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import DUMP_WAITS
from tideline.control.record import Record, confirmed
from tideline.settings import Store
from tideline.store.chain import Chain as RealChain
from tideline.store.objects import open_store

REQUEST = DumpRequest("r1", ("public.a",))
RUNNING = Answer("r1", RequestState.RUNNING)
DONE = Answer("r1", RequestState.DONE, manifest_number=9)
AWAY = Unavailable("redis did not answer in time")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    """Time passes while it is waited, and no other."""
    return Clock()


class Queue:
    """``look`` is what Redis holds at a time: an answer, nothing, or an outage."""

    def __init__(self, clock: Clock, look: Callable[[float], Answer | Unavailable | None]) -> None:
        self.clock = clock
        self._look = look
        self.asked_at: list[float] = []

    def answer(self, request_id: str) -> Answer | None:
        found = self._look(self.clock.now)
        if isinstance(found, Unavailable):
            raise found
        return found

    def ask(self, request: DumpRequest) -> None:
        self.asked_at.append(self.clock.now)


class Chain:
    """What the chain says from a time on; ``ends_at``: when it has the ends that are told."""

    def __init__(self, clock: Clock, reported: dict[float, Answer], ends_at: float = 0.0) -> None:
        self._clock = clock
        self._said = reported
        self._ends_at = ends_at
        self.looks = 0

    def confirmed(self, answer: Answer | None) -> Answer | None:
        believed = answer is None or not answer.state.final or self._clock.now >= self._ends_at
        return answer if believed else None

    def answer(self, request_id: str) -> Answer | None:
        self.looks += 1
        known = [answer for at, answer in self._said.items() if at <= self._clock.now]
        return known[-1] if known else None


def followed(queue: Queue, chain: Chain) -> tuple[Answer, list[Answer]]:
    shown: list[Answer] = []
    clock = queue.clock
    client = RequestClient(
        cast(ControlClient, queue),
        REQUEST,
        cast(Record, chain),
        clock=clock.monotonic,
        sleep=clock.sleep,
    )
    ended = client.follow(DUMP_WAITS, shown.append)
    if ended.away is not None:
        raise ended.away
    assert ended.answer is not None
    return ended.answer, shown


def test_answers_are_followed_and_the_chain_left_alone(clock: Clock) -> None:
    queue = Queue(clock, lambda now: DONE if now > 3 else RUNNING)
    chain = Chain(clock, {})
    assert followed(queue, chain) == (DONE, [RUNNING, DONE])
    assert (chain.looks, queue.asked_at) == (0, [])


def test_a_forged_end_is_not_believed(clock: Clock) -> None:
    """Clients may write answers, too. It counts as none: the chain is looked at, the request sent
    again, and the end believed once the chain has it."""
    queue = Queue(clock, lambda now: DONE)
    assert followed(queue, Chain(clock, {}, ends_at=21.0)) == (DONE, [DONE])
    assert clock.now >= 21.0
    assert len(queue.asked_at) > 2


def test_the_chain_says_it_is_not_so(clock: Clock) -> None:
    queue = Queue(clock, lambda now: DONE)
    failed = replace(DONE, state=RequestState.FAILED)
    chain = Chain(clock, {0.0: RUNNING, 30.0: failed}, ends_at=1e9)
    assert followed(queue, chain) == (failed, [RUNNING, failed])


def end_of(state: RequestState, number: int | None) -> Answer:
    return Answer("r1", state, manifest_number=number, tables=DONE.tables)


def test_an_end_is_the_chains() -> None:
    store = open_store(Store(url=f"memory://{uuid.uuid4().hex}"))
    chain = RealChain(store, "shop")
    done = end_of(RequestState.DONE, 1)
    other = Answer("r2", RequestState.REFUSED, manifest_number=1, error="why")
    chain.append(first_manifest(finished=(done,), refused=(other,)))
    forged = replace(done, tables=())
    assert confirmed(chain, forged) == done, "the chain's words, not the queue's"
    assert confirmed(chain, other) == other
    wrong = [(RequestState.FAILED, 1), (RequestState.DONE, 2), (RequestState.DONE, None)]
    for state, number in [*wrong, (RequestState.DONE, -1), (RequestState.DONE, 0)]:
        assert confirmed(chain, end_of(state, number)) is None
    assert confirmed(chain, Answer("r3", RequestState.DONE, manifest_number=1)) is None


def test_a_flushed_redis_is_made_up_for_by_the_chain(clock: Clock) -> None:
    queue = Queue(clock, lambda now: None)
    chain = Chain(clock, {0.0: RUNNING, 12.0: DONE})
    assert followed(queue, chain) == (DONE, [RUNNING, DONE])
    assert queue.asked_at == []
    assert clock.now < 12 + 2 * DUMP_WAITS.repeat_after_s


def test_what_is_not_known_is_asked_for_again(clock: Clock) -> None:
    queue = Queue(clock, lambda now: DONE if now > 12 else None)
    assert followed(queue, Chain(clock, {}))[0] == DONE
    assert len(queue.asked_at) == 2


def test_what_there_is_no_room_for_is_asked_for_until_there_is(clock: Clock) -> None:
    full = Answer("r1", RequestState.REFUSED, manifest_number=1, again=True)
    queue = Queue(clock, lambda now: DONE if now > 22 else full)
    assert followed(queue, Chain(clock, {}, ends_at=0.0)) == (DONE, [full, DONE])
    assert len(queue.asked_at) == 4


def test_a_stale_answer_does_not_hide_the_end(clock: Clock) -> None:
    """Redis came back as it was before, and the worker is gone."""
    queue = Queue(clock, lambda now: RUNNING)
    assert followed(queue, Chain(clock, {20.0: DONE})) == (DONE, [RUNNING, DONE])
    assert queue.asked_at == []


def test_a_redis_that_is_away_for_good(clock: Clock) -> None:
    queue = Queue(clock, lambda now: AWAY)
    assert followed(queue, Chain(clock, {0.0: RUNNING, 200.0: DONE}))[0] == DONE
    begun = clock.now
    with pytest.raises(Unavailable, match="redis did not answer"):
        followed(queue, Chain(clock, {}))
    assert clock.now - begun == pytest.approx(DUMP_WAITS.away_timeout_s, abs=1)


def test_what_the_chain_has_of_a_request() -> None:
    dump = TableDump("public.a", state="running", first_low_seq=1, chunks=2, rows=20)
    command = Answer("c1", RequestState.DONE, manifest_number=4)
    state = OpenState((OpenRequest(REQUEST, (dump,)),), recent=(command,), paused=True)
    (reported,) = open_answers(state)
    assert reported == recorded_answer(state, "r1")
    assert (reported.state, reported.tables[0].rows) == (RequestState.PAUSED, 20)
    assert recorded_answer(state, "c1") == command
    assert recorded_answer(state, "other") is None
