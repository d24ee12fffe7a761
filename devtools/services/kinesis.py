"""Kinesis for tests and examples: moto behind a real HTTP server, which fails as moto never
does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from devtools.services.http_service import HttpService, QuietHandler

REGION = "eu-central-1"
THROTTLED = "ProvisionedThroughputExceededException"

Fault = Callable[[int, list[dict[str, Any]]], Mapping[int, str]]
"""What fails of a request to put records: its number from 1 on and its records; returned are codes
of errors by the index of a record. `UNANSWERED` for any drops the connection once all of the
request had its effect."""
UNANSWERED = "UNANSWERED"


def none_fails(number: int, records: list[dict[str, Any]]) -> Mapping[int, str]:
    return {}


class KinesisServer(HttpService):
    """The service, in this process. ``puts`` are the records of each request to put some."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.fault: Fault = none_fails
        self.before: Callable[[str], None] = lambda action: None
        self.puts: list[list[dict[str, Any]]] = []
        self._lock = threading.RLock()

    @property
    def url(self) -> str:
        return self.endpoint

    def answer(self, action: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body for a request; the status 0 is no answer."""
        self.before(action)
        return self._put(body) if action == "PutRecords" else self._moto(action, body)

    def call(self, action: str, **parameters: Any) -> Any:
        """Ask moto; data is Base64, as on the wire."""
        status, body = self._moto(action, json.dumps(parameters).encode())
        assert status == 200, body
        return json.loads(body or b"{}")

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        listed = self.call("ListShards", StreamName=stream)["Shards"]
        return [one for one in listed if "EndingSequenceNumber" not in one["SequenceNumberRange"]]

    def split(self, stream: str) -> None:
        """Split the first open shard in its middle."""
        from moto.kinesis.models import kinesis_backends

        shard = self.open_shards(stream)[0]
        low, high = (int(shard["HashKeyRange"][f"{one}HashKey"]) for one in ("Starting", "Ending"))
        self.call(
            "SplitShard",
            StreamName=stream,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str((low + high) // 2),
        )
        # moto goes on to put records into the shard that is closed now.
        (backend,) = (one[REGION] for one in kinesis_backends.values())
        closed = backend.streams[stream].shards[shard["ShardId"]]
        closed.starting_hash = closed.ending_hash = -1

    def records(self, stream: str) -> list[dict[str, Any]]:
        """Return all records, those of a shard in their order, and after those of its parents."""
        found = []
        for shard in self.call("ListShards", StreamName=stream)["Shards"]:
            place = self.call(
                "GetShardIterator",
                StreamName=stream,
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )["ShardIterator"]
            while True:
                page = self.call("GetRecords", ShardIterator=place)
                found += [{**one, "ShardId": shard["ShardId"]} for one in page["Records"]]
                if not page["Records"]:
                    break
                place = page["NextShardIterator"]
        return found

    def _moto(self, action: str, body: bytes) -> tuple[int, bytes]:
        # heavy: only tests of Kinesis have it
        from moto.core.request import Request
        from moto.kinesis.responses import KinesisResponse

        headers = {
            "X-Amz-Target": f"Kinesis_20131202.{action}",
            "Content-Type": "application/x-amz-json-1.1",
            "Host": f"kinesis.{REGION}.amazonaws.com",
            "Authorization": f"AWS4-HMAC-SHA256 Credential=k/2026/{REGION}/kinesis/aws4_request",
        }
        url = f"https://kinesis.{REGION}.amazonaws.com/"
        with self._lock:
            request = Request.from_primitives("POST", url, headers, body)
            status, _, answer = KinesisResponse.dispatch(request, url, request.headers)
        return int(status), answer.encode() if isinstance(answer, str) else bytes(answer)

    def _put(self, body: bytes) -> tuple[int, bytes]:
        """Put what does not fail; the status 0 is no answer."""
        asked = json.loads(body)
        records = asked["Records"]
        with self._lock:
            self.puts.append(records)
            failed = self.fault(len(self.puts), records)
            unanswered = UNANSWERED in failed.values()
            left = [one for at, one in enumerate(records) if unanswered or at not in failed]
            status, answer = 200, b'{"Records": []}'
            if left:
                status, answer = self._moto(
                    "PutRecords", json.dumps({**asked, "Records": left}).encode()
                )
        if unanswered:
            return 0, b""
        if status != 200 or not failed:
            return status, answer
        results = iter(json.loads(answer)["Records"])
        merged = [
            {"ErrorCode": failed[at], "ErrorMessage": "no"} if at in failed else next(results)
            for at in range(len(records))
        ]
        return 200, json.dumps({"FailedRecordCount": len(failed), "Records": merged}).encode()


class _Handler(QuietHandler):
    def do_POST(self) -> None:
        action = self.headers["X-Amz-Target"].partition(".")[2]
        status, answer = self.server.service.answer(action, self.received_body())
        self.respond(status, answer, {"Content-Type": "application/x-amz-json-1.1"})
