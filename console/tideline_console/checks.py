"""Checks the requirements of every Tideline installation, and prints findings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator

from tideline.cluster_spark import STANDALONE, is_cluster
from tideline.contract.errors import TidelineError
from tideline.contract.target_url import ICEBERG
from tideline.control import ControlClient
from tideline.java import java_home
from tideline.settings import Settings, Store
from tideline.settings.addresses import is_loopback, split_url
from tideline.settings.redis_url import redis_doubt
from tideline.store.objects import open_store
from tideline.store.probe import probe_store
from tideline_capture.sources.finding import Finding, error, ok, warning
from tideline_console.errors import EXIT_MISCONFIGURED
from tideline_console.output import say

RETRY_S = 5.0
_MARKS = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


def report(findings: Iterable[Finding], *, good: str, bad: str) -> int:
    """Print each finding with its fix as soon as it is known, and the verdict: ``good`` and 0, or
    ``bad`` and another exit code where one of them is an error."""
    counted = {"ok": 0, "warning": 0, "error": 0}
    for finding in findings:
        counted[finding.level] += 1
        say(f"{_MARKS[finding.level]} {finding.name}: {finding.message}")
        if finding.fix is not None:
            say(f"        fix: {finding.fix}")
    verdict = bad if counted["error"] else good
    say(f"doctor: {counted['error']} errors, {counted['warning']} warnings: {verdict}")
    return EXIT_MISCONFIGURED if counted["error"] else 0


def check_store(settings: Settings) -> list[Finding]:
    probe_store(impatient(settings.store), settings.pipeline)
    return [ok("store", "of two racing create-only writes one wins")]


def check_store_tls(settings: Settings) -> Iterator[Finding]:
    """Check store and warehouse by the settings alone, whatever answers at their addresses."""
    for place in (settings.store, settings.warehouse):
        endpoint = split_url(place.endpoint or "https://amazon")
        if endpoint.scheme == "http" and not is_loopback(endpoint.hostname or ""):
            name = place.section
            text = f"what goes to the {name}, signatures and rows, is not encrypted"
            yield warning(f"{name}_encryption", text, f"write https:// in {name}.endpoint")


def check_control(settings: Settings) -> list[Finding]:
    control_client = ControlClient(settings.control, settings.pipeline)
    control_client.ping()
    control_client.close()
    return [ok("control", "the queue answers")]


def check_redis_tls(settings: Settings) -> Iterator[Finding]:
    """Check the queue and the publishers' servers, by the settings alone."""
    if doubt := redis_doubt(settings.control.url.get_secret_value(), "control.url"):
        yield warning("control_encryption", f"the queue's connection {doubt[0]}", doubt[1])
    for name, publisher in sorted(settings.publish.items()):
        if publisher.output != "redis":
            continue
        key = f"publish.{name}.redis.url"
        if doubt := redis_doubt(publisher.redis.url.get_secret_value(), key):
            text = f"the connection of publisher {name}, with the rows, {doubt[0]}"
            yield warning("publish_encryption", text, doubt[1])


def check_cluster(settings: Settings, master: str) -> Iterator[Finding]:
    """Check jobs on ``master`` by the settings alone; no findings for a local one."""
    if not is_cluster(master):
        return
    places = {"store": settings.store, "warehouse": settings.warehouse_storage}
    folders = [name for name, place in places.items() if split_url(place.url).scheme == "file"]
    if folders and not settings.merge.shared_files:
        text = f"{' and '.join(folders)} in a folder: jobs on {master} are refused"
        fix = "move both to S3; or, if it is one mount on all machines, set merge.shared_files"
        yield warning("cluster_files", text, fix)
    if not master.startswith(STANDALONE) or settings.merge.secret() is not None:
        return
    servers = [split_url(f"//{one}") for one in master.removeprefix(STANDALONE).split(",")]
    if all(is_loopback(one.hostname or "") for one in servers):
        return
    keys = any(place.keys() is not None for place in places.values() if place.in_s3)
    what = "rows and the keys of S3 go" if keys else "rows go"
    text = (
        f"who reaches {master} may run programs there, and {what} to its executors unencrypted,"
        " unless Spark's own settings say otherwise"
    )
    fix = "set merge.authenticate_secret_file; docs/CLUSTER.md has the lines for master and workers"
    yield warning("cluster_encryption", text, fix)


def check_warehouse(settings: Settings) -> list[Finding]:
    """Write, read and remove a small object where the tables will lie; no findings where a REST
    catalog decides that."""
    url = settings.warehouse.url
    if settings.formats == {ICEBERG} and settings.warehouse.iceberg.catalog == "rest":
        return []
    store = open_store(impatient(settings.warehouse_store()))
    key = f"tideline-probe-{uuid.uuid4().hex}"
    store.put(key, b"probe")
    found = store.get(key)
    store.delete(key)
    if found != b"probe":
        return [error("warehouse", f"{url} does not return what was written to it")]
    if settings.warehouse.in_object_store and settings.formats != {ICEBERG}:
        probe_store(impatient(settings.warehouse_store()), settings.pipeline)
        return [ok("warehouse", f"{url} can be written, and of two racing commits one wins")]
    return [ok("warehouse", f"{url} can be written")]


def check_java() -> list[Finding]:
    return [ok("java", f"Java 17 for merges: {java_home()}")]


def impatient(store: Store) -> Store:
    """Return the same store without a worker's retries when it is unavailable."""
    return store.model_copy(update={"retry_s": min(store.retry_s, RETRY_S)})


def attempt(name: str, check: Callable[[], list[Finding]], *, grave: bool = True) -> list[Finding]:
    """Return the check's findings, or the error that prevented it as a finding."""
    try:
        return check()
    except TidelineError as failed:
        make = error if grave else warning
        return [make(name, failed.message, failed.hint)]
