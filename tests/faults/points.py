"""The named points of a worker, and one round of killing or freezing it at one of them.

`POINTS` holds, for every moment that a death may come at, where in the worker that is. A round
starts a worker that ends (or stops) itself at its point, while the traffic of the test goes on, and
brings about what the point needs: a request, a huge transaction, a stop.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.fixtures.capture import Pipeline, WorkerProcess, poll
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.request import DumpRequest, RequestState

FENCED = 6
"""The exit code of a worker that finds that another one owns the chain."""
Need = Literal["nothing", "dump", "huge transaction", "stop"]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the worker. ``moment`` is what it is in words, ``count`` which time of getting
    there is the interesting one: what comes first is often the start itself."""

    name: str
    moment: str
    need: Need = "nothing"
    count: int = 1


POINTS = (
    Point("after-takeover", "the lease is won, nothing was done with it"),
    Point("reading", "connected, the log is about to be read"),
    Point("inside-transaction", "some of a transaction is read", "huge transaction"),
    Point("before-encode", "before rows become a part", count=3),
    Point("before-part-put", "encoded, before the PUT", count=3),
    Point("part-unanswered", "a part's PUT had its effect, its answer is not read", count=3),
    Point("between-parts-and-manifest", "after the PUTs, before the manifest", count=3),
    Point("manifest-unanswered", "the manifest is durable, its answer is not read", count=5),
    Point("after-manifest", "the manifest is durable, nothing follows from it yet", count=5),
    Point("before-confirm", "durable, not confirmed to the source", count=2),
    Point("after-confirm", "confirmed to the source", count=2),
    Point("after-low", "the low watermark is written", "dump", 2),
    Point("after-fence", "what the low watermark asks for is visible", "dump"),
    Point("inside-select", "some of a chunk's rows have come", "dump", 2),
    Point("after-select", "a chunk is read", "dump", 2),
    Point("between-watermarks", "a chunk is decoded, its high watermark not written", "dump", 2),
    Point("after-high", "the high watermark is written", "dump", 2),
    Point("before-chunk-put", "before the PUT of a chunk's rows", "dump", 2),
    Point("after-chunk-put", "after it", "dump", 2),
    Point("between-chunks", "the next chunk is about to be asked for", "dump", 3),
    Point("request-claimed", "a request came out of the queue", "dump"),
    Point("before-release", "stopping, all is durable", "stop"),
    Point("after-release", "the chain says that this worker has stopped", "stop"),
)


@dataclass(frozen=True, slots=True)
class Round:
    """What a round left: the worker (dead or frozen), the chain's newest manifest then, and the
    request that was asked for, if the point needed one."""

    point: Point
    worker: WorkerProcess
    last: Manifest
    request: DumpRequest | None


def kill_at(
    pipeline: Pipeline[Any],
    point: Point,
    number: signal.Signals,
    *,
    table: str,
    write_huge: Callable[[], None],
) -> Round:
    """Start a worker and return once it was ended (SIGKILL) or frozen (SIGSTOP) at ``point``.

    ``table`` is one to dump, of a few hundred rows at least; ``write_huge`` commits a transaction
    of more rows than the pipeline's ``batch_rows_max``. No other worker may be at work. Raises
    AssertionError when the point was not reached.
    """
    action = "kill" if number is signal.SIGKILL else "stop"
    worker = pipeline.start(**{action: f"{point.name}:{point.count}"})  # type: ignore[arg-type]
    request = None
    if point.need == "dump":
        request = DumpRequest(f"round-{uuid.uuid4().hex[:8]}", (table,), chunk_rows=100)
        control_client = pipeline.control_client()
        control_client.ask(request)
        control_client.close()
    elif point.need == "huge transaction":
        worker.wait_point("reading")
        write_huge()
    elif point.need == "stop":
        worker.wait_point("after-manifest", 3)
        worker.signal(signal.SIGTERM)
    if number is signal.SIGKILL:
        assert worker.wait() == -signal.SIGKILL, worker.output()[-3000:]
    else:
        worker.wait_stopped()
    # Parts go by several threads: one more may pass before the signal has stopped them all.
    assert worker.points()[point.name] >= point.count
    return Round(point, worker, pipeline.manifest(), request)


def taken_over(pipeline: Pipeline[Any], last: Manifest) -> Manifest:
    """The takeover behind ``last``, once it is there; before it there may be what its writer had on
    the way to the store when it died."""
    found = [last]

    def taken() -> bool:
        entry = pipeline.chain.read(found[-1].manifest_number + 1)
        if entry is not None:
            found.append(entry.manifest)
        return found[-1].term != last.term

    poll("another worker takes over", taken)
    assert found[-1].kind is ManifestKind.TAKEOVER, found[-1]
    return found[-1]


def wake(round_: Round) -> None:
    """Let a frozen worker go on, after another one took over: it ends as one that was fenced,
    unless it had said before that it stopped."""
    round_.worker.signal(signal.SIGCONT)
    code, reported = round_.worker.wait(), round_.worker.output()
    assert "Traceback" not in reported, reported[-3000:]
    if round_.point.name == "after-release":
        assert code == 0, reported[-3000:]
        return
    assert (code, "Fenced" in reported) == (FENCED, True), (
        f"{round_.point.name}: {code}\n{reported[-3000:]}"
    )


def ended_well(pipeline: Pipeline[Any], request: DumpRequest) -> None:
    """The request ends in a recorded state, whoever was killed meanwhile; asked for again as every
    asker does."""
    answer = pipeline.ask(request)
    assert answer.state is RequestState.DONE, answer
