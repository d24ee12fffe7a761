"""Webhooks as an output, at a real HTTP server: what is sent again, put aside, or stops it."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.fixtures.capture import poll
from tests.fixtures.certificates import make_authority, sign
from tests.fixtures.publishing import BEGINNING, SkippedPauses
from tests.publish.outputs import WebhookCase
from tests.publish.rig import Rig
from tests.support.webhook_server import SECRET, Received, WebhookServer, accept
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.webhook.output import WebhookOutput

Answer = tuple[int, Mapping[str, str]]


def event(seq: int, part: int = 0) -> ChangeEvent:
    value = json.dumps({"seq": seq, "part": part, "text": "x" * 100}).encode()
    return ChangeEvent(seq, part, "public.a", "u", 7, 1_000, b'{"id":1}', value)


def at(seq: int) -> ChainPosition:
    return ChainPosition("one", seq, seq)


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with WebhookServer() as server:
        yield server


@pytest.fixture
def opened(server: WebhookServer, pauses: SkippedPauses) -> Iterator[Callable[..., WebhookOutput]]:
    made = []

    def make(position: ChainPosition = BEGINNING, **given: Any) -> WebhookOutput:
        hook = {"url": server.url, "secret": SECRET, "timeout_s": 5, **given}
        settings = PublishSettings.model_validate({"output": "webhook", "webhook": hook})
        context = OutputContext("shop", "events", settings, RealSystem(), pauses)
        made.append(WebhookOutput(context))
        made[-1].open(position)
        return made[-1]

    yield make
    for one in made:
        one.close()


Opened = Callable[..., WebhookOutput]


def publish(output: WebhookOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(at(events[-1].seq))


def seqs(server: WebhookServer, status: int = 200) -> list[int]:
    found = [one for one in server.received if one.status == status]
    return [event["seq"] for one in found for event in one.events()]


def test_a_batch_is_signed_and_known_by_its_sequences(
    opened: Opened, server: WebhookServer
) -> None:
    publish(opened(), event(1), event(2), event(2, 1))
    [found] = server.received
    assert [(one["seq"], one["part"]) for one in found.events()] == [(1, 0), (2, 0), (2, 1)]
    assert found.id == found.headers["webhook-id"] == "shop:events:one:0:1-2_1"
    assert found.headers["content-type"] == "application/json"
    assert found.is_signed()
    assert not Received(found.headers, found.body + b" ", 200).is_signed()


def test_lines_and_a_change_of_secrets(
    opened: Opened, server: WebhookServer, tmp_path: Path
) -> None:
    key = b"another key of tests"
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\nwhsec_{base64.b64encode(key).decode()}\n")
    publish(opened(secret=None, secret_file=file, body="ndjson"), event(1), event(2))
    [found] = server.received
    assert found.headers["content-type"] == "application/x-ndjson"
    assert [one["seq"] for one in found.events()] == [1, 2]
    assert found.is_signed()
    assert found.is_signed(key)


def test_batches_are_cut_by_number_and_size(opened: Opened, server: WebhookServer) -> None:
    publish(opened(batch_events_max=2), *map(event, range(1, 6)))
    assert [one.id[-3:] for one in server.received] == ["1-2", "3-4", "5-5"]
    server.received.clear()
    publish(opened(batch_bytes_max=200), *map(event, range(1, 4)))
    assert [len(one.events()) for one in server.received] == [1, 1, 1]


@pytest.mark.parametrize("status", [0, 408, 425, 429, 500, 503])
def test_what_passes_is_sent_again_as_it_was(
    opened: Opened, server: WebhookServer, pauses: SkippedPauses, status: int
) -> None:
    server.answer = lambda number, _: (status if number < 4 else 200, {})
    publish(opened(), event(1), event(2))
    publish(opened(at(2)), event(3))
    assert [one.id[-3:] for one in server.received] == ["1-2"] * 4 + ["3-3"]
    assert len({one.body for one in server.received[:4]}) == 1
    assert pauses.asked == [0.5, 1.0, 2.0]


def test_pauses_grow_to_a_limit_and_the_endpoint_may_ask_for_longer(
    opened: Opened, server: WebhookServer, pauses: SkippedPauses
) -> None:
    later = {2: {"Retry-After": "120"}, 3: {"Retry-After": "99999"}, 4: {"Retry-After": "soon"}}
    server.answer = lambda number, _: (503 if number < 7 else 200, later.get(number, {}))
    publish(opened(pause_max_s=3), event(1))
    assert pauses.asked == [0.5, 120.0, 3_600.0, 3.0, 3.0, 3.0]


def test_a_time_to_try_again_counts(
    opened: Opened, server: WebhookServer, pauses: SkippedPauses
) -> None:
    late = {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}
    server.answer = lambda number, _: (429 if number == 1 else 200, late)
    publish(opened(), event(1))
    assert pauses.asked == [3_600.0]


def test_one_that_is_stopped_while_it_waits_has_settled_nothing(
    opened: Opened, server: WebhookServer, pauses: SkippedPauses
) -> None:
    pauses.stop_after = 2
    server.answer = lambda *_: (503, {})
    output = opened()
    with pytest.raises(Unavailable, match="stopped before the endpoint took changes 1-1"):
        publish(output, event(1))


def test_a_refusal_stops_it_there(opened: Opened, server: WebhookServer) -> None:
    server.answer = lambda *_: (422, {})
    with pytest.raises(Misconfigured, match="refuses changes 1-2: 422"):
        publish(opened(), event(1), event(2))
    assert len(server.received) == 1


def refuse(*wrong: int) -> Callable[[int, list[dict[str, Any]]], Answer]:
    """An endpoint that refuses what has one of these sequences."""

    def answer(number: int, events: list[dict[str, Any]]) -> Answer:
        return (422 if any(one["seq"] in wrong for one in events) else 200), {}

    return answer


def letters(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "shop.events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_only_what_is_refused_is_put_aside(
    opened: Opened, server: WebhookServer, tmp_path: Path
) -> None:
    server.answer = refuse(3, 8)
    output = opened(on_refused="dead_letter", dead_letter_folder=tmp_path)
    publish(output, *map(event, range(1, 11)))
    assert seqs(server) == [1, 2, 4, 5, 6, 7, 9, 10]
    assert output.dead_letters == 2
    found = letters(tmp_path)
    assert [(one["seq"], one["status"], one["event"]["seq"]) for one in found] == [
        (3, 422, 3),
        (8, 422, 8),
    ]
    assert (tmp_path / "shop.events.jsonl").stat().st_mode & 0o077 == 0


def test_a_dead_letter_is_on_disk_before_what_follows_is_sent(
    opened: Opened, server: WebhookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: order.append("synced"))

    def answer(number: int, events: list[dict[str, Any]]) -> Answer:
        order.append(f"asked {events[0]['seq']}")
        return (422 if events[0]["seq"] == 1 else 200), {}

    server.answer = answer
    output = opened(on_refused="dead_letter", dead_letter_folder=tmp_path, batch_events_max=1)
    order.clear()
    publish(output, event(1), event(2))
    assert order == ["asked 1", "synced", "asked 2"]


def test_dead_letters_behind_the_position_are_taken_back(
    opened: Opened, server: WebhookServer, tmp_path: Path
) -> None:
    """They are sent again, and the endpoint may take them now."""
    dead: Any = {"on_refused": "dead_letter", "dead_letter_folder": tmp_path}
    server.answer = refuse(1, 3)
    publish(opened(**dead), event(1), event(2), event(3))
    with (tmp_path / "shop.events.jsonl").open("a") as file:
        file.write('{"seq":4,"half a li')
    server.answer = refuse(1)
    again = opened(at(2), **dead)
    assert again.dead_letters == 1
    publish(again, event(3))
    assert [one["seq"] for one in letters(tmp_path)] == [1]


def test_dead_letters_are_in_the_log_of_positions_also_of_a_later_worker(
    server: WebhookServer, tmp_path: Path
) -> None:
    """Where status reads them."""
    case, dead = WebhookCase(server), {"on_refused": "dead_letter", "dead_letter_folder": tmp_path}
    server.answer = refuse(3, 8)
    hook = {**case.settings()["webhook"], **{name: str(one) for name, one in dead.items()}}
    rig = Rig(tmp_path, case, webhook=hook)
    rig.commit(2)
    for _ in range(2):
        rig.publish()
        assert rig.entry().dead_letters == 2
        rig.commit(1)


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 410])
def test_what_is_about_the_endpoint_puts_nothing_aside(
    opened: Opened, server: WebhookServer, tmp_path: Path, status: int
) -> None:
    with WebhookServer() as other:
        server.answer = lambda *_: (status, {"Location": other.url})
        output = opened(on_refused="dead_letter", dead_letter_folder=tmp_path)
        with pytest.raises(Misconfigured, match=str(status)):
            publish(output, event(1))
        assert other.received == []
    assert output.dead_letters == 0


def test_the_endpoint_is_verified(opened: Opened, pauses: SkippedPauses, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = sign(authority, "127.0.0.1")
    file = tmp_path / "server.pem"
    file.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with WebhookServer(context=context) as server:
        url = server.url
        with pytest.raises(Misconfigured, match="is not verified"):
            publish(opened(url=url), event(1))
        publish(opened(url=url, ca_file=authority.file), event(1))
        assert len(server.received) == 1


def test_no_error_and_no_log_shows_secret_or_path(
    opened: Opened, server: WebhookServer, pauses: SkippedPauses, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses.stop_after = 2
    server.answer = lambda *_: (503, {})
    with pytest.raises(Unavailable) as caught:
        publish(opened(url=server.url + "/canary-path"), event(1))
    shown = f"{caught.value} {capsys.readouterr()}"
    assert "canary-path" not in shown
    assert SECRET not in shown
    assert "xxx" not in shown


def test_one_whose_endpoint_is_away_stays_the_active_one(
    server: WebhookServer, tmp_path: Path
) -> None:
    """Longer than others wait for it."""
    case = WebhookCase(server)
    server.answer = lambda *_: (503, {})
    rig = Rig(tmp_path, case)
    rig.commit(1)
    first = rig.worker()
    first.wait_output("publishing")
    writer = rig.entry().writer
    second = rig.worker()
    second.wait_output("another worker publishes")
    after = rig.entry().number + 12  # Each 0.2 s; a second without one is a takeover.
    poll("it shows that it lives", lambda: rig.entry().number > after)
    assert rig.entry().writer == writer
    poll("it shows why nothing is published", lambda: bool(rig.entry().reason))
    assert re.fullmatch(r"until the endpoint took changes \d+-\d+: status 503", rig.entry().reason)
    server.answer = accept
    poll("it is published", rig.is_published)
    assert (rig.entry().writer, rig.entry().reason) == (writer, "")
    for one in (second, first):
        one.terminate()
    rig.check()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": None}, "names no endpoint"),
        ({"secret": None}, "nothing to sign requests with"),
        ({"url": "http://example.com/x"}, "must be https://, except"),
        ({"url": "https://user:pw@example.com/x"}, "must not hold credentials"),
        ({"url": "ftp://example.com"}, "must be https://host/path"),
        ({"timeout_s": 12}, "would be taken over while it waits"),
        ({"on_refused": "dead_letter"}, "no place for events"),
        ({"on_refused": "dead_letter", "dead_letter_folder": "here"}, "an absolute path"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], reason: str) -> None:
    hook = {"url": "https://example.com/x", "secret": SECRET, **given}
    with pytest.raises(ValidationError, match=reason):
        PublishSettings.model_validate({"output": "webhook", "webhook": hook})
