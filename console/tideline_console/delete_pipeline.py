"""``tideline delete-pipeline``: removes what a pipeline has made, step by step.

Every step is shown with what it removes before any is taken. Only existing things make a step, so a
killed run continues when run again. The chain comes last, because it identifies the owner of the
rest, and stays while anything before it could not be removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

from redis.exceptions import NoPermissionError

from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Manifest
from tideline.control import WORKER_TTL_S, ControlClient
from tideline.control.merger import LEASE_S, MergerClient
from tideline.planner.registration import drop_entry, own_entries
from tideline.redis_client import connect, redis_errors
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.sources.administration import Removal
from tideline_capture.sources.registry import administration_of
from tideline_console.deleted_files import chain_removal, target_removals
from tideline_console.errors import report
from tideline_console.output import say

EXIT_LEFT = 2
_STOP = "stop it first (SIGTERM); one that was killed counts as running for {:g} s"
_KEYS = "tideline:{}:*"
_TIMEOUT_S = 5.0

OnStep = Callable[[str], None]


def run(
    settings: Settings,
    *,
    chain: bool,
    targets: bool,
    yes: bool,
    on_step: OnStep = lambda name: None,
) -> int:
    """Show the steps, and with ``yes`` take them; `EXIT_LEFT` when one was refused. ``on_step`` is
    called after each, for tests.

    Raises Misconfigured, naming it, while a worker or the merger runs, and Unavailable when a
    server is away.
    """
    tail = _tail(settings)
    refuse_running(settings, tail)
    steps = list(find_steps(settings, tail, chain=chain, targets=targets))
    if not steps:
        say(f"nothing is left of pipeline {settings.pipeline}")
        return 0
    say(f"pipeline {settings.pipeline}, {len(steps)} steps:")
    for number, step in enumerate(steps, 1):
        say(f"  {number}. {step.name}: {step.what}")
    if not chain and tail is not None:
        say("its chain stays, and no worker can go on with it: --chain removes it, too")
    if not yes:
        say("nothing is removed yet: --yes does it")
        return 0
    return _take(steps, on_step)


def find_steps(
    settings: Settings, tail: Manifest | None, *, chain: bool, targets: bool
) -> Iterator[Removal]:
    """Return the existing things to remove, in order of removal."""
    incarnation = None if tail is None else tail.incarnation
    yield from administration_of(settings).removals(incarnation)
    yield from _queue_removal(settings)
    if targets:
        yield from _entry_removals(settings, incarnation)
        yield from target_removals(settings, incarnation)
    if chain:
        yield from chain_removal(settings)


def _entry_removals(settings: Settings, incarnation: str | None) -> Iterator[Removal]:
    """Yield the catalog's entries of the pipeline, before the tables: the other way round, names
    would lead nowhere. The chain has the names, and goes last."""
    for own in own_entries(settings, incarnation):
        what = f"the entry {own.name} of {own.table} in the catalog"
        yield Removal("entry", what, partial(drop_entry, settings, own))


def refuse_running(settings: Settings, tail: Manifest | None) -> None:
    """Raise Misconfigured naming the workers that run by their own report or the chain's, or the
    merger, which would make removed tables again."""
    with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
        running = [
            f"{worker.writer} ({worker.state}, process {worker.pid} on {worker.host})"
            for worker in control_client.workers()
        ]
    if tail is not None and not running and not tail.released and tail.written_at_us is not None:
        age_s = time.time() - tail.written_at_us / 1e6
        if age_s < settings.capture.takeover_after_s:
            running = [f"{tail.writer} (it wrote to the chain {max(age_s, 0):.0f} s ago)"]
    if running:
        raise Misconfigured(
            f"a worker of pipeline {settings.pipeline} runs: {', '.join(running)}",
            hint=_STOP.format(WORKER_TTL_S),
        )
    with closing(MergerClient(settings.control, settings.pipeline)) as merger_client:
        merger = merger_client.status()
    if merger is not None:
        raise Misconfigured(
            f"the merger of pipeline {settings.pipeline} runs: process {merger.pid} on"
            f" {merger.host}",
            hint=_STOP.format(LEASE_S),
        )


def _take(steps: Sequence[Removal], on_step: OnStep) -> int:
    refused = False
    for step in steps:
        if step.name == "chain" and refused:
            say("the chain stays until the steps before it are done: run this again then")
            break
        try:
            step.remove()
        except Misconfigured as error:
            refused = True
            report(error)
        else:
            say(f"removed {step.name}: {step.what}")
        on_step(step.name)
    return EXIT_LEFT if refused else 0


def _tail(settings: Settings) -> Manifest | None:
    entry = Chain(open_store(settings.store), settings.pipeline).tail()
    return None if entry is None else entry.manifest


def _queue_removal(settings: Settings) -> Iterator[Removal]:
    found = len(_queue_keys(settings))
    if found:
        pattern = _KEYS.format(settings.pipeline)
        yield Removal("queue", f"{found} keys {pattern}", lambda: _delete_keys(settings))


def _queue_keys(settings: Settings) -> list[bytes]:
    pattern = _KEYS.format(settings.pipeline)
    client = connect(settings.control, timeout_s=_TIMEOUT_S)
    with closing(client), redis_errors():
        try:
            return list(client.scan_iter(pattern, count=1_000))
        except NoPermissionError:
            raise Misconfigured(
                "the login of control.url may not list the queue's keys",
                hint=f"ACL SETUSER … +scan; or redis-cli --scan --pattern '{pattern}' | xargs"
                " redis-cli del",
            ) from None


def _delete_keys(settings: Settings) -> None:
    client = connect(settings.control, timeout_s=_TIMEOUT_S)
    keys = _queue_keys(settings)
    with closing(client), redis_errors():
        if keys:
            client.delete(*keys)
