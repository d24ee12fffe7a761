"""By whom store and warehouse in S3 are asked, under which host, and for which encryption: each of
the three clients (the store's, the reader of tables, Spark's), for each place apart, in a process
of its own whose environment has what it has in production.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from devtools.services.s3 import REGION, S3Server
from tests.faults.any_identity import DOMAIN, AnyIdentity, Seen
from tests.fixtures.aws_identities import INSTANCE, TOKEN, WEB, WEB_TOKEN, AwsIdentities
from tests.fixtures.certificates import make_authority
from tests.fixtures.object_storage import NEEDS_S3
from tests.fixtures.settings import as_toml
from tests.fixtures.tls_front import TlsFront
from tideline.cache import cache_folder
from tideline.java import java_home

pytestmark = [
    NEEDS_S3,
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).resolve().parents[2]
JAVA, RUST = "aws-sdk-java", "object_store"
"""What the clients' names have in them; the store's client and the reader have one in common."""
PROGRAM = """
import sys
from tideline.settings import load_settings
from tideline.store import objects
from tideline.store.objects import open_store
from tideline.warehouse.registry import open_reader
from tideline_console.spark import spark_session
from tideline_spark.files import write_document

LARGE = 6 << 20  # the client's parts have 5 MiB
objects.SINGLE_PUT_BYTES_MAX = LARGE - 1
settings = load_settings(sys.argv[1])
places = [settings.store, settings.warehouse_store()]
for place in places:
    store = open_store(place)
    assert store.create("created", b"1") and not store.create("created", b"2")
    store.put("large", bytes(LARGE))
with spark_session(settings, "merge") as session:
    session._jsc.hadoopConfiguration().set("fs.s3a.multipart.size", "5M")
    for place in places:
        session.range(5).write.format("delta").save(place.url + "/t")
        write_document(session, place.url + "/large.json", bytes(LARGE))
for place in (settings.store, settings.warehouse_storage):
    reader = open_reader(place.url + "/t", place)
    assert reader is not None and len(list(reader.commits())) == 1
print("done")
"""


@pytest.fixture(scope="module")
def s3_of_all(s3: S3Server) -> Iterator[AnyIdentity]:
    with AnyIdentity(s3) as made:
        yield made


def asked(
    server: AnyIdentity,
    folder: Path,
    store: Mapping[str, Any],
    warehouse: Mapping[str, Any],
    environment: Mapping[str, str],
) -> tuple[list[Seen], list[Seen]]:
    """What is asked of the store and of the warehouse, each a bucket of its own."""
    buckets = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("store", "warehouse")]
    for bucket in buckets:
        server.make_bucket(bucket)
    where = {"endpoint": server.endpoint, "region": REGION}
    config = folder / "tideline.toml"
    values = {
        "pipeline": "p",
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": f"s3://{buckets[0]}/x", **where, **store},
        "warehouse": {"url": f"s3://{buckets[1]}/y", **where, **warehouse},
        "merge": {"driver_memory": "1g"},
    }
    config.write_text(as_toml(values))
    hosts = folder / "hosts"
    hosts.write_text(
        "".join(
            f"127.0.0.1 {name}\n"
            for name in ("localhost", platform.node(), *(f"{one}.{DOMAIN}" for one in buckets))
        )
    )
    # No resolver of the machine knows the domain: Java reads that file, Rust goes by the proxy.
    inherited = {
        **{n: v for n, v in os.environ.items() if not n.startswith("AWS_")},
        "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}",
        "HTTP_PROXY": server.endpoint,
        "NO_PROXY": "127.0.0.1",
        "TIDELINE_CACHE": str(cache_folder()),  # With jars that no home of a test has.
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config)],
        cwd=ROOT,
        env={**inherited, "HOME": str(folder), "JAVA_HOME": str(java_home()), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-6_000:]
    seen = ([one for one in server.requests if one.bucket == bucket] for bucket in buckets)
    return next(seen), next(seen)


def profiles(folder: Path, **keys: str) -> dict[str, str]:
    """An environment that names files with these profiles: name and access key."""
    text = "".join(
        f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = canary\n"
        for name, key in keys.items()
    )
    (folder / "credentials").write_text(text)
    (folder / "config").write_text("")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def by(found: list[Seen]) -> set[tuple[str, str]]:
    """Each kind of client with each identity that it had."""
    kinds = (JAVA, RUST)
    return {
        (next((k for k in kinds if k in one.client), one.client), one.identity) for one in found
    }


def encryptions(found: list[Seen]) -> set[tuple[str, str | None, str | None]]:
    """By kind of client, what each request that makes an object, or begins to, asks for."""
    return {
        (JAVA if JAVA in one.client else RUST, one.encryption, one.kms_key)
        for one in found
        if one.writes
    }


def hosts(found: list[Seen]) -> dict[str, set[str]]:
    """Each client with the hosts that it asked, in which a bucket's name is ``bucket``. The reader
    of tables and the store's client have one library: what they ask for tells them apart."""
    seen: dict[str, set[str]] = {}
    for one in found:
        reader = "reader" if "_delta_log" in one.key else "store"
        who = JAVA if JAVA in one.client else reader
        if one.key:  # A list has its place in the query.
            seen.setdefault(who, set()).add(one.host.replace(one.bucket, "bucket"))
    return seen


def test_profiles_and_encryption_of_each_place(s3_of_all: AnyIdentity, tmp_path: Path) -> None:
    """The default profile is neither's. Parts of a large object and reads carry no such header. The
    warehouse has its bucket in the name of the host."""
    hosted = {"endpoint": f"http://{DOMAIN}:{s3_of_all.port}", "path_style": False}
    store, warehouse = asked(
        s3_of_all,
        tmp_path,
        {"profile": "one", "encryption": "sse-kms", "kms_key": "arn:aws:kms:k"},
        {"profile": "two", "encryption": "sse-s3", **hosted},
        profiles(tmp_path, default="AKIADEFAULT", one="AKIAONE", two="AKIATWO"),
    )
    assert by(store) == {(JAVA, "AKIAONE"), (RUST, "AKIAONE")}
    assert by(warehouse) == {(JAVA, "AKIATWO"), (RUST, "AKIATWO")}
    assert encryptions(store) == {(who, "aws:kms", "arn:aws:kms:k") for who in (JAVA, RUST)}
    assert encryptions(warehouse) == {(who, "AES256", None) for who in (JAVA, RUST)}
    for place in (store, warehouse):
        begun = {JAVA in one.client for one in place if one.method == "POST" and one.writes}
        assert begun == {True, False}, "neither client has written in several requests"
    for place, host in ((store, "127.0.0.1"), (warehouse, f"bucket.{DOMAIN}")):
        assert hosts(place) == {who: {host} for who in (JAVA, "store", "reader")}


KEY = {"access_key_id": "AKIAKEY", "secret_access_key": "canary"}
"""Of the warehouse, where the environment's identity is the store's alone."""


def check_identities(
    found: tuple[list[Seen], list[Seen]], identity: str, own: Mapping[str, str]
) -> None:
    """The store is asked by ``identity``, the warehouse too or by its own key, and each by all."""
    store, warehouse = found
    mine = own.get("access_key_id", identity)
    assert by(store) == {(JAVA, identity), (RUST, identity)}
    assert by(warehouse) == {(JAVA, mine), (RUST, mine)}
    assert {one.token for one in store} == {TOKEN}
    assert {one.token for one in warehouse} == {None if own else TOKEN}


@pytest.mark.long
@pytest.mark.parametrize("own", [{}, KEY], ids=["both", "a key for the warehouse"])
def test_a_web_identity(s3_of_all: AnyIdentity, tmp_path: Path, own: dict[str, str]) -> None:
    """Of the environment; a profile on the machine is not taken instead."""
    token = tmp_path / "token"
    token.write_text(WEB_TOKEN)
    authority = make_authority(tmp_path)
    with AwsIdentities() as aws, TlsFront(tmp_path, authority, aws.port) as sts:
        environment = {
            **profiles(tmp_path, default="AKIADEFAULT"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/tideline",
            "AWS_ROLE_SESSION_NAME": "tideline",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_STS": f"https://127.0.0.1:{sts.port}",
        }
        trusted = {"ca_file": str(authority.file)}
        found = asked(s3_of_all, tmp_path, trusted, {**trusted, **own}, environment)
        assert set(aws.asked) == {"arn:aws:iam::1:role/tideline"}
    check_identities(found, WEB, own)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({}, id="both", marks=pytest.mark.long),
        pytest.param(KEY, id="a key for the warehouse"),
    ],
)
def test_the_role_of_an_instance(
    s3_of_all: AnyIdentity, tmp_path: Path, own: dict[str, str]
) -> None:
    """Java's client and Rust's have a variable each for another address of the service."""
    with AwsIdentities() as aws:
        environment = {
            **profiles(tmp_path, default="AKIADEFAULT"),
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.endpoint,
            "AWS_METADATA_ENDPOINT": aws.endpoint,
        }
        found = asked(s3_of_all, tmp_path, {}, own, environment)
        assert set(aws.asked) == {"role"}
    check_identities(found, INSTANCE, own)
