"""Open requests: accepted, advanced, ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tideline.contract.answers import Circumstances, answer_of
from tideline.contract.errors import InvariantBroken
from tideline.contract.open_state import OpenState, TableDump
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline_capture.core.answers import RecentAnswers
from tideline_capture.core.open_requests import OpenRequests

A, B = "public.a", "public.b"


def opened(*requests: DumpRequest) -> OpenRequests:
    made = OpenRequests(OpenState())
    for request in requests:
        made.accept(request, request.tables)
    return made


def whole(request_id: str, *tables: str) -> DumpRequest:
    return DumpRequest(request_id, tables or (A,))


def keyed(request_id: str, table: str = A) -> DumpRequest:
    return DumpRequest(request_id, (table,), keys=(("1",), ("2",)))


def finish(requests: OpenRequests, request_id: str, table: str = A) -> list[Answer]:
    requests.update(request_id, TableDump(table, state="done", rows=3, chunks=1))
    return requests.take_ended()


def test_given_keys_come_first_then_the_oldest() -> None:
    requests = opened(whole("old"), whole("new"), keyed("repair"))
    order = []
    while (found := next(requests.due(), None)) is not None:
        order.append(found[0].request.request_id)
        finish(requests, order[-1])
    assert order == ["repair", "old", "new"]


def test_tables_of_a_request_come_in_its_order() -> None:
    requests = opened(whole("r", A, B))
    found = next(requests.due(), None)
    assert found is not None and found[1].table == A
    assert finish(requests, "r", A) == []
    found = next(requests.due(), None)
    assert found is not None and found[1].table == B
    assert [answer.state for answer in finish(requests, "r", B)] == [RequestState.DONE]


def test_an_ended_one_is_remembered_for_a_while() -> None:
    requests = opened(*(whole(f"r{number}") for number in range(4)))
    recent = RecentAnswers((), 2)
    for number in range(4):
        (answer,) = finish(requests, f"r{number}")
        recent.remember(answer)
    assert [answer.request_id for answer in recent.all] == ["r2", "r3"]
    assert recent.get("r0") is None
    assert recent.get("r3") is not None
    assert len(requests) == 0


def test_a_durable_answer_knows_its_manifest() -> None:
    requests = opened(whole("r"), whole("s"))
    answers = [*finish(requests, "r"), *finish(requests, "s")]
    recent = RecentAnswers(answers[1:], 1)
    recent.durable([replace(answer, manifest_number=7) for answer in answers])
    assert [(one.request_id, one.manifest_number) for one in recent.all] == [("s", 7)]


def test_only_whole_dumps_begin_again() -> None:
    requests = opened(whole("r"), keyed("k"))
    for request_id in ("r", "k"):
        requests.update(request_id, TableDump(A, state="running", first_low_seq=3, last_key=("9",)))
    assert requests.restart(A)
    assert requests.dump("r", A) == TableDump(A)
    repaired = requests.dump("k", A)
    assert repaired is not None and repaired.last_key == ("9",)
    assert not requests.restart(B)


def test_what_ended_does_not_begin_again() -> None:
    requests = opened(whole("r", A, B))
    requests.update("r", TableDump(A, state="done"))
    assert not requests.restart(A)


def test_a_failed_table_fails_its_requests_when_the_others_are_done() -> None:
    requests = opened(whole("r", A, B))
    assert requests.fail_table(A, "it is gone")
    assert not requests.fail_table(A, "again")
    answer = finish(requests, "r", B)[0]
    assert (answer.state, answer.error) == (RequestState.FAILED, f"{A}: it is gone")


def test_what_is_not_open_cannot_advance() -> None:
    with pytest.raises(InvariantBroken):
        opened().update("r", TableDump(A))


class TestReread:
    KEYS = (("1",), ("2",))

    def test_a_list_grows_at_its_end(self) -> None:
        requests = opened()
        assert requests.reread(A, self.KEYS, "reread:1") == "reread:1"
        requests.update("reread:1", TableDump(A, state="running", last_key=("1",)))
        assert requests.reread(A, (("3",),), "reread:2") is None
        assert requests.open[0].request.keys == (("1",), ("2",), ("3",))
        dump = requests.dump("reread:1", A)
        assert dump is not None and dump.last_key == ("1",)
        assert (requests.reread_keys(A), requests.reread_keys(B)) == (3, 0)

    def test_each_table_has_its_own(self) -> None:
        requests = opened()
        requests.reread(A, self.KEYS, "reread:1")
        assert requests.reread(B, self.KEYS, "reread:2") == "reread:2"


class TestAnswer:
    @pytest.mark.parametrize(
        ("states", "expected"),
        [
            (("accepted", "accepted"), RequestState.ACCEPTED),
            (("running", "accepted"), RequestState.RUNNING),
            (("done", "accepted"), RequestState.RUNNING),
            (("done", "done"), RequestState.DONE),
            (("done", "failed"), RequestState.FAILED),
        ],
    )
    def test_its_state_is_that_of_all_its_tables(
        self, states: tuple[str, str], expected: RequestState
    ) -> None:
        requests = opened(whole("r", A, B))
        for table, state in zip((A, B), states, strict=True):
            error = "why" if state == "failed" else None
            requests.update("r", TableDump(table, state=state, error=error))
        assert answer_of(requests.open[0]).state is expected

    def test_it_estimates_chunks_from_those_read(self) -> None:
        requests = opened(whole("r"))
        requests.update("r", TableDump(A, state="running", chunks=2, rows=20, rows_estimate=100))
        table = answer_of(requests.open[0], Circumstances(waiting={A: "a lock"})).tables[0]
        assert (table.chunks_estimate, table.waiting) == (10, "a lock")

    def test_of_very_many_tables_that_failed_the_answer_names_a_few(self) -> None:
        requests = opened(whole("all", *(f"a.t{number}" for number in range(40))))
        requests.fail("all", "it was cancelled")
        (answer,) = requests.take_ended()
        text = str(answer.error)
        assert text.startswith("a.t0: it was cancelled; a.t1: ")
        assert text.endswith("; … 40 tables failed")
        assert text.count("cancelled") == 10
        assert all(table.error for table in answer.tables)

    def test_what_throttles_is_told_of_a_request_that_has_not_begun_too(self) -> None:
        requests = opened(whole("one"))
        slowed = Circumstances(throttled="replica lag 9 s, limit 5 s")
        reported = answer_of(requests.open[0], slowed)
        assert reported.state is RequestState.ACCEPTED
        assert reported.tables[0].waiting == "replica lag 9 s, limit 5 s"
        paused = replace(requests.open[0], paused=True)
        stopped = Circumstances(paused=True, throttled="replica lag 9 s, limit 5 s")
        assert answer_of(paused, stopped).tables[0].waiting is None
