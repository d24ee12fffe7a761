"""The S3 of docker-compose.s3.yml: its server by the container's own command and check, and who
uses it with what their containers get."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError
from obstore.store import S3Store

from devtools.services.ports import LOOPBACK, free_port
from tests.fixtures.capture import poll
from tests.fixtures.containers import Containers

FILES = ("docker-compose.yml", "docker-compose.s3.yml")
KEY, SECRET = "chosen", "canaryofs3"
INNER_PORTS = (
    "admin.port", "admin.port.grpc", "master.port", "master.port.grpc", "volume.port",
    "volume.port.grpc", "filer.port.grpc", "s3.port.grpc", "s3.port.iceberg", "s3.port.lance",
)  # fmt: skip
"""Those of the server's parts, which have a network of their own in a container."""
SECRETS = ("source_password", "valkey_password", "airflow_database_password", "airflow_jwt_secret")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """The S3 server, healthy."""
    folder = tmp_path_factory.mktemp("compose")
    port, filer = free_port(), free_port()
    config = folder / "tideline.toml"
    config.write_text('pipeline = "shop"\n[source]\ntables = ["public.*"]\n')
    (folder / "data").mkdir()
    made = Containers(
        folder,
        {
            "http://s3:8333": f"http://{LOOPBACK}:{port}",
            "127.0.0.1:8333": f"{LOOPBACK}:{port}",
            "127.0.0.1:8888": f"{LOOPBACK}:{filer}",
            "-s3.port=8333": f"-s3.port={port}",
            "-dir=/data": f"-dir={folder / 'data'}",
            "/etc/tideline/tideline.toml": str(config),
            "redis://valkey:6379/0": f"redis://{LOOPBACK}:{free_port()}/0",
            "@source:5432": f"@{LOOPBACK}:{free_port()}",
        },
        {"s3_secret_access_key": SECRET, **dict.fromkeys(SECRETS, "given")},
        files=FILES,
        variables={"S3_ACCESS_KEY_ID": KEY, "S3_SECRET_ACCESS_KEY": SECRET},
    )
    assert not made.healthy("s3"), "its check is passed without a server"
    inner = [f"-filer.port={filer}", *(f"-{name}={free_port()}" for name in INNER_PORTS)]
    made.start("s3", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", *inner)
    try:
        poll("it is healthy", lambda: made.healthy("s3"))
        yield made
    finally:
        made.stop()


def client(made: Containers, bucket: str, secret: str = SECRET) -> S3Store:
    return S3Store(
        bucket,
        endpoint=made.here("http://s3:8333"),
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=secret,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "30s"},
    )


def test_a_healthy_server_has_the_bucket_and_creates_an_object_once(deployment: Containers) -> None:
    """Without a wait: who depends on it is started once the check is passed."""
    store = client(deployment, "tideline")
    store.put("once", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        store.put("once", b"second", mode="create")
    assert bytes(store.get("once").bytes()) == b"first"


def test_no_other_key_and_no_other_bucket(deployment: Containers) -> None:
    with pytest.raises(PermissionDeniedError):
        client(deployment, "tideline", "another").put("a", b"")
    with pytest.raises(FileNotFoundError):
        client(deployment, "another").put("a", b"")


@pytest.mark.parametrize("name", ["worker", "airflow-scheduler"])
def test_who_uses_it_reaches_store_and_warehouse(deployment: Containers, name: str) -> None:
    """By `tideline doctor`, with what the container gets; its source and its queue are away."""
    tideline = Path(deployment.command("worker")[0])
    done = subprocess.run(
        [str(tideline), "doctor"],
        env=deployment.environment(name),
        capture_output=True,
        text=True,
        check=False,
        cwd=deployment.folder,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {"store:", "warehouse:"} <= {line[1] for line in lines if line[:1] == ["ok"]}, done
    assert SECRET not in done.stdout + done.stderr
