"""The compose files without an engine: well-formed, the demo's commands, and secrets only in those
containers that need them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from devtools.services import airflow, commands
from devtools.services.mariadb import MariadbServer
from devtools.services.mysql import MysqlServer
from devtools.services.ports import free_port
from devtools.services.valkey import binary
from tests.fixtures.capture import poll
from tests.fixtures.mysql_servers import GRANTS
from tideline.cache import cache_folder
from tideline.settings import Capture, Merge, SourceSettings, make_settings
from tideline.warehouse.hadoop import s3_settings
from tideline.warehouse.job_jars import every_jar
from tideline_capture.health import Health
from tideline_capture.sources.postgres.setup import setup_sql
from tideline_capture.web import serve
from tideline_console.follow import health as merger_health
from tideline_console.follow import supervisor

ROOT = Path(__file__).resolve().parents[3]
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image",
    "mem_limit", "ports", "profiles", "read_only", "restart", "secrets", "security_opt",
    "stop_grace_period", "tmpfs", "user", "volumes",
}  # fmt: skip
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<kind>:-|:\?|-)(?P<text>[^}]*))?\}")
SECRET = re.compile(r"PASSWORD$|SECRET|FERNET|ACCESS_KEY$|SQL_ALCHEMY_CONN")
"""Variables that hold a secret; with ``_FILE`` or ``_CMD`` behind it, one says where it is."""
GIVEN: dict[str, set[str]] = {
    "source": {"source_owner_password", "source_password"},
    "mariadb": {"source_owner_password", "source_password"},
    "mysql": {"source_owner_password", "source_password"},
    "valkey": {"valkey_password"},
    "worker": {"source_password", "valkey_password"},
    "merger": {"valkey_password"},
    "airflow-db": {"airflow_database_password"},
    "airflow-migrate": {"airflow_database_password"},
    "airflow-api-server": {
        "airflow_database_password", "airflow_fernet_key", "airflow_jwt_secret",
        "airflow_secret_key",
    },
    "airflow-scheduler": {"airflow_database_password", "airflow_jwt_secret", "valkey_password"},
    "airflow-dag-processor": {"airflow_database_password", "valkey_password"},
    "airflow-triggerer": {"airflow_database_password", "airflow_fernet_key", "valkey_password"},
}  # fmt: skip
"""Which container gets which secrets; `tests/airflow/test_airflow_containers.py` runs on them."""
UNITS = {"m": 1 << 20, "g": 1 << 30}

Service = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load("docker-compose.yml")


@pytest.fixture(scope="module")
def s3() -> dict[str, Any]:
    return load("docker-compose.s3.yml")


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    found: dict[str, Service] = compose["services"]
    return found


def ours(services: dict[str, Service]) -> dict[str, Service]:
    return {name: service for name, service in services.items() if service["image"] == "tideline"}


def interpolated(text: str) -> str:
    """What compose makes of ``text`` when every variable without a default is ``given``."""
    return VARIABLE.sub(lambda m: m["text"] if m["kind"] in (":-", "-") else "given", text)


def test_every_command_of_ours_is_one_that_the_demo_runs(services: dict[str, Service]) -> None:
    run = sorted(tuple(service["command"]) for service in ours(services).values())
    wanted = [commands.worker(), commands.AIRFLOW_MIGRATE, *commands.AIRFLOW.values()]
    assert run == sorted([*wanted, commands.MERGER])
    assert services["merger"]["profiles"] == ["merger"], "who wants it says so"
    started = {name: ("airflow", *words) for name, words in airflow.COMPONENTS.items()}
    assert started == commands.AIRFLOW


def test_services_refer_to_what_exists(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert service.keys() <= SERVICE_KEYS, name
        for other, how in service.get("depends_on", {}).items():
            assert other in services, f"{name} depends on {other}"
            assert "profiles" not in services[other], f"{other} may be left out"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other}'s health"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert services[other]["restart"] == "no", f"{other} must end to complete"


def test_tasks_start_behind_the_api_server_that_they_call(services: dict[str, Service]) -> None:
    """The scheduler runs them, and begins with one: the first day of tideline_backfill."""
    own, shared = (services[f"airflow-{name}"]["depends_on"] for name in ("scheduler", "triggerer"))
    assert own == {**shared, "airflow-api-server": {"condition": "service_healthy"}}


SOURCES = {"mariadb": "MARIADB", "mysql": "MYSQL"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_of_the_mysql_kind_logs_all_that_capture_needs(
    services: dict[str, Service], name: str
) -> None:
    """As the servers of the tests do, which the whole suite runs on."""
    service = services[name]
    assert service["profiles"] == [name]
    options = dict(word.removeprefix("--").split("=") for word in service["command"][1:])
    own = MariadbServer if name == "mariadb" else MysqlServer
    assert options.pop("server-id") == "1"
    assert {
        key.replace("-", "_"): value for key, value in options.items()
    }.items() <= own.SETTINGS.items()
    assert {"log-bin", "binlog-format", "binlog-row-image", "binlog-row-metadata"} <= options.keys()
    prefix = SOURCES[name]
    assert service["environment"][f"{prefix}_USER"] == "tideline"
    assert f"{prefix}_DATABASE" not in service["environment"], "its user would own all of it"


def test_the_urls_of_the_example_are_ones_that_settings_accept() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    urls = {word[11:] for line in lines for word in line.split() if word.startswith("SOURCE_URL=")}
    found = {SourceSettings(url=SecretStr(url)).kind for url in urls}
    assert found == {"postgres", "mysql", "mariadb"}


def test_the_grants_are_those_that_the_tests_run_with() -> None:
    lines = (ROOT / "scripts" / "grant-capture-mysql.sh").read_text().splitlines()
    granted = [line.rstrip(";") for line in lines if line.startswith("GRANT")]
    names = {"user": "tideline", "database": "shop", "watermarks": "tideline"}
    assert granted == [grant.format(**names) for grant in GRANTS]
    for page in ("README.md", "docs/GRANTS.md"):
        text = (ROOT / page).read_text().replace("'tideline'@'…'", "tideline").replace("`", "")
        shown = [line.partition(";")[0] for line in text.splitlines() if "TO tideline;" in line]
        assert [line for line in shown if line in granted] == granted, page


def test_no_source_is_captured_by_who_owns_it(services: dict[str, Service]) -> None:
    """The owner's password goes to the server alone; the capturing role's is another one."""
    owners = {"source": "POSTGRES", "mariadb": "MARIADB_ROOT", "mysql": "MYSQL_ROOT"}
    for name, prefix in owners.items():
        given = services[name]["environment"]
        assert given[f"{prefix}_PASSWORD_FILE"] == "/run/secrets/source_owner_password"
        [script] = [one for one in services[name]["volumes"] if "initdb.d" in one]
        assert script.endswith(":ro") and os.path.exists(ROOT / script.partition(":")[0])
    assert services["source"]["environment"]["POSTGRES_USER"] == "postgres"
    holders = {name for name, secrets in GIVEN.items() if "source_owner_password" in secrets}
    assert holders == owners.keys()


def test_the_statements_for_postgresql_are_those_that_init_prints() -> None:
    """But for tables, which come later: all of them are published, and may be read."""
    text = (ROOT / "scripts" / "grant-capture-postgres.sh").read_text()
    ran = [line for line in text.splitlines() if line.startswith(("CREATE", "GRANT", "ALTER"))]
    url = "postgresql://tideline@source:5432/shop"
    places = {"store": {"url": "file:///s"}, "warehouse": {"url": "file:///w"}}
    source = {"url": url, "tables": ["public.*"]}
    wanted = setup_sql(make_settings({"pipeline": "shop", "source": source, **places}))
    printed = {line.partition(";")[0] for line in wanted.splitlines()}
    assert {
        line.rstrip(";")
        .replace(" PASSWORD :'password'", "")
        .replace(" FOR TABLES IN SCHEMA public", "")
        for line in ran
    } <= {one.replace('"', "") for one in printed}


WRITES = {
    "worker": {"/var/lib/tideline"},
    "merger": {"/var/lib/tideline"},
    "airflow-migrate": {"/var/lib/airflow"},
    "airflow-api-server": {"/var/lib/airflow", "/var/lib/airflow-users"},
    "airflow-scheduler": {"/var/lib/airflow", "/var/lib/tideline"},
    "airflow-dag-processor": {"/var/lib/airflow"},
    "airflow-triggerer": {"/var/lib/airflow"},
    "valkey": {"/data"},
    "source": {"/var/lib/postgresql", "/var/run/postgresql"},
    "airflow-db": {"/var/lib/postgresql", "/var/run/postgresql"},
}
"""Where a container whose own files cannot be written may write, beside /tmp."""


def test_no_container_has_rights_that_it_does_not_need(
    services: dict[str, Service], s3: dict[str, Any]
) -> None:
    for name, service in {**services, "s3": s3["services"]["s3"]}.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service and "/var/run/docker" not in json.dumps(service), name
        # What runs as root has the few rights that it gives up root with.
        root = "user" not in service and service["image"] != "tideline"
        assert ("cap_add" in service) == root == (name == "s3"), name
    assert (ROOT / "Dockerfile").read_text().count("\nUSER tideline\n") == 1


def test_a_container_writes_only_into_its_own_places(services: dict[str, Service]) -> None:
    assert {name for name, one in services.items() if one.get("read_only")} == WRITES.keys()
    for name, places in WRITES.items():
        service = services[name]
        mounts = [volume.split(":") for volume in service.get("volumes", ())]
        disks = {there for _, there, *how in mounts if how != ["ro"]}
        memory = {one.partition(":")[0] for one in service["tmpfs"]}
        assert not disks & memory, name
        assert disks | memory == places | {"/tmp"}, name


def test_volumes_are_declared_and_used(compose: dict[str, Any], s3: dict[str, Any]) -> None:
    for file in (compose, s3):
        mounted = {
            volume.partition(":")[0]
            for service in file["services"].values()
            for volume in service.get("volumes", ())
        }
        assert {name for name in mounted if not name.startswith(".")} == file["volumes"].keys()


def test_what_runs_on_is_restarted_and_has_a_health_check(services: dict[str, Service]) -> None:
    for name, service in services.items():
        if service["restart"] != "no":
            assert service["restart"] == "unless-stopped", name
            assert {"test", "interval", "timeout", "retries"} <= service["healthcheck"].keys(), name


def test_only_the_ui_is_published_and_on_loopback(services: dict[str, Service]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"airflow-api-server": ["127.0.0.1:8080:8080"]}


def test_each_container_gets_the_secrets_that_it_needs_and_no_other(
    compose: dict[str, Any], services: dict[str, Service]
) -> None:
    assert {name: set(one.get("secrets", ())) for name, one in services.items()} == GIVEN
    assert set.union(*GIVEN.values()) == compose["secrets"].keys()
    for name, service in services.items():
        scripts = re.findall(r'"\./(scripts/[\w-]+\.sh):', json.dumps(service))
        text = json.dumps(service) + "".join((ROOT / one).read_text() for one in scripts)
        read = set(re.findall(r"/run/secrets/(\w+)", text))
        # Whoever asks the control queue by the settings reads its password there.
        assert read == GIVEN[name], f"{name} is given what it does not read, or the other way round"


def test_airflow_gets_no_password_of_the_source_and_what_does_not_ask_no_setting(
    services: dict[str, Service],
) -> None:
    for name, service in services.items():
        text = json.dumps(service)
        if name.startswith("airflow") or name == "merger":
            assert not re.search("source_password|SOURCE_PASSWORD|SOURCE__PASSWORD", text), name
    for name in ("airflow-migrate", "airflow-api-server", "airflow-db"):
        assert "tideline.toml" not in json.dumps(services[name]), name
        assert not [key for key in services[name]["environment"] if "__URL" in key], name
    mounted = {name for name, one in services.items() if "tideline-data" in json.dumps(one)}
    assert mounted == {"worker", "merger", "airflow-scheduler"}
    users = {name for name, one in services.items() if "airflow-users" in json.dumps(one)}
    assert users == {"airflow-api-server"}, "the UI's passwords are for who checks them"


def test_no_secret_is_in_an_environment(services: dict[str, Service]) -> None:
    """Everybody who may ask the engine reads that. Secrets are files."""
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if SECRET.search(key.removesuffix("_FILE").removesuffix("_CMD")):
                assert key.endswith(("_FILE", "_CMD")) or "PASSWORDS_FILE" in key, (name, key)
            assert "PASSWORD" not in interpolated_names(value), (name, key)
        for word in service.get("command", ()):
            assert not VARIABLE.search(word), (name, word)


def interpolated_names(value: str) -> str:
    return " ".join(match["name"] for match in VARIABLE.finditer(value))


def example() -> dict[str, str]:
    """What `.env.example` sets, and leaves to be filled in."""
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_a_new_deployment_has_store_and_warehouse_in_s3(
    services: dict[str, Service], s3: dict[str, Any]
) -> None:
    """One whose `.env` has neither line, as each of 0.1, stays in its volume."""
    files = example()["COMPOSE_FILE"].split(":")
    assert files == ["docker-compose.yml", "docker-compose.s3.yml"]
    assert set(s3["services"]["s3"]["profiles"]) <= set(example()["COMPOSE_PROFILES"].split(","))
    for name in S3_USERS:
        for place in ("STORE", "WAREHOUSE"):
            key = f"TIDELINE_{place}__URL"
            assert interpolated(services[name]["environment"][key]).startswith("file:///var/lib/")
            assert interpolated(s3["services"][name]["environment"][key]).startswith("s3://")


def test_the_example_names_every_variable_that_must_be_given(
    compose: dict[str, Any], s3: dict[str, Any]
) -> None:
    """And only those: a secret that nobody reads is asked of nobody."""
    wanted = {match["name"] for one in compose["x-must-be-given"] if (match := VARIABLE.match(one))}
    secrets = {one["environment"] for one in compose["secrets"].values()}
    # Only the sources of the profiles have an owner whose password is known here, and their images
    # refuse an empty one by themselves.
    assert wanted == secrets - {"SOURCE_OWNER_PASSWORD"}
    own = {"COMPOSE_FILE", "COMPOSE_PROFILES", "S3_ACCESS_KEY_ID"}
    secrets |= {one["environment"] for one in s3["secrets"].values()}
    given = example()
    assert secrets == given.keys() - own
    assert not any(given[name] for name in secrets), "an example secret would be used as it is"
    text = (ROOT / "docker-compose.yml").read_text()
    assert wanted == {match["name"] for match in VARIABLE.finditer(text) if match["kind"] == ":?"}


def test_an_empty_schedule_stays_empty() -> None:
    """Airflow takes it as "only when triggered"."""
    text = (ROOT / "docker-compose.yml").read_text()
    kinds = {one["name"]: one["kind"] for one in VARIABLE.finditer(text)}
    assert {kinds[name] for name in ("MERGE_SCHEDULE", "MAINTAIN_SCHEDULE")} == {"-"}


def environment_of(service: Service, folder: Path) -> dict[str, str]:
    """A container's settings of ours, with its secrets in ``folder``."""
    return {
        key: interpolated(value).replace("/run/secrets", str(folder))
        for key, value in service["environment"].items()
        if key.startswith("TIDELINE_") and key != "TIDELINE_MERGE_SCHEDULE"
    }


@pytest.mark.parametrize("name", ["worker", "merger", "airflow-scheduler", "airflow-triggerer"])
def test_the_settings_of_who_needs_them_are_accepted(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for secret in services[name]["secrets"]:
        (tmp_path / secret).write_text(f"given-{secret}")
    for key, value in environment_of(services[name], tmp_path).items():
        monkeypatch.setenv(key, value)
    settings = make_settings({"pipeline": "shop"})
    assert settings.control.address() == "redis://:given-valkey_password@valkey:6379/0"
    if name == "worker":
        expected = "postgresql://tideline:given-source_password@source:5432/shop?sslmode=disable"
        assert settings.source.dsn() == expected
        assert settings.capture.metrics_address == "0.0.0.0"
    else:
        expected = "postgresql://tideline@source:5432/shop?sslmode=disable"
        assert settings.source.dsn() == expected
        assert settings.capture.metrics_port == 0
    if name == "airflow-scheduler":
        assert settings.merge.jars is not None
        pattern = Path(settings.merge.jars).relative_to("/opt/tideline/cache")
        assert "TIDELINE_CACHE=/opt/tideline/cache" in (ROOT / "Dockerfile").read_text()
        jars = [jar.relative_to(cache_folder()) for jar in every_jar()]
        assert {len(jar.parts) for jar in jars} == {len(pattern.parts)}, "a star is no slash"
        assert all(jar.match(str(pattern)) for jar in jars)


S3_USERS = ("worker", "merger", "airflow-scheduler")
"""Who reads and writes in S3: capture, the merger, and the tasks with Spark."""


def test_s3s_key_is_given_to_who_uses_it_and_as_a_secret(
    services: dict[str, Service], s3: dict[str, Any]
) -> None:
    assert not re.search("s3_|S3_|STORE__(ACCESS|SECRET)", json.dumps(services))
    assert s3["services"].keys() == {"s3", *S3_USERS}
    assert s3["secrets"] == {"s3_secret_access_key": {"environment": "S3_SECRET_ACCESS_KEY"}}
    for name in S3_USERS:
        added = s3["services"][name]
        assert added["secrets"] == ["s3_secret_access_key"]
        assert "S3_SECRET" not in json.dumps(added["environment"]), name
        # Another S3 than this server is no container to wait for.
        wanted = {"condition": "service_healthy", "required": False}
        assert added["depends_on"] == {"s3": wanted}
        assert added["networks"] == ["default", "s3"]
    # What is not S3 of it asks for no key.
    assert s3["services"]["s3"]["networks"] == ["s3"] and s3["networks"].keys() == {"s3"}
    assert not [name for name, one in services.items() if "networks" in one]
    assert s3["services"]["s3"]["profiles"] == ["s3"] and s3["services"]["s3"]["healthcheck"]
    text = (ROOT / "docker-compose.s3.yml").read_text()
    wanted_names = {match["name"] for match in VARIABLE.finditer(text) if match["kind"] == ":?"}
    assert wanted_names == {"S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize("name", S3_USERS)
def test_store_and_warehouse_lie_in_s3_and_are_reached_alike(
    services: dict[str, Service],
    s3: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    for secret in services[name]["secrets"]:
        (tmp_path / secret).write_text(f"given-{secret}")
    (tmp_path / "s3_secret_access_key").write_text("given-key")
    merged = {**services[name]["environment"], **s3["services"][name]["environment"]}
    for key, value in environment_of({"environment": merged}, tmp_path).items():
        monkeypatch.setenv(key, value)
    settings = make_settings({"pipeline": "shop"})
    places = (settings.store, settings.warehouse_storage)
    assert [place.url for place in places] == ["s3://tideline/store", "s3://tideline/warehouse"]
    for place in places:
        assert (place.access_key_id, place.secret()) == ("given", "given-key")
        assert (place.endpoint, place.region) == ("http://s3:8333", "us-east-1")
    [bucket] = re.findall(r"-bucket=(\S+)", " ".join(s3["services"]["s3"]["command"]))
    prefix = f"spark.hadoop.fs.s3a.bucket.{bucket}"
    assert s3_settings(settings)[f"{prefix}.secret.key"] == "given-key"
    assert s3_settings(settings)[f"{prefix}.endpoint"] == "http://s3:8333"
    monkeypatch.setenv("TIDELINE_STORE__ENDPOINT", "")
    assert make_settings({"pipeline": "shop"}).store.endpoint is None, "Amazon's"


def bytes_of(limit: str) -> int:
    text = interpolated(limit)
    return int(text[:-1]) * UNITS[text[-1]]


def test_every_container_has_a_memory_limit_that_what_it_may_hold_fits_in(
    services: dict[str, Service], s3: dict[str, Any]
) -> None:
    servers = {**services, "s3": s3["services"]["s3"]}
    limits = {name: bytes_of(one["mem_limit"]) for name, one in servers.items()}
    settings = Capture()
    chunks = settings.parallel_dumps_max * (1 + settings.chunks_ahead_max)
    worker = settings.upload_bytes_max + chunks * settings.chunk_bytes_max
    encoded = 2 * settings.segment_bytes_max + 2 * settings.rollup_file_bytes_max
    assert limits["worker"] >= worker + encoded + (512 << 20)
    heap = Merge().driver_memory
    assert heap.endswith("g")
    tasks = int(services["airflow-scheduler"]["environment"]["AIRFLOW__CORE__PARALLELISM"])
    shadow = (1 << 30) + (1 + tasks) * (300 << 20)
    assert limits["airflow-scheduler"] >= bytes_of(heap) + shadow
    places = {"store": {"url": "file:///s"}, "warehouse": {"url": "file:///w"}}
    url = "postgresql://tideline@source/shop"
    merging = make_settings({"pipeline": "shop", "source": {"url": url}, **places})
    session = supervisor._memory_max(merging)
    assert limits["merger"] >= session + (512 << 20)


def test_the_mergers_check_is_one_that_can_be_run(services: dict[str, Service]) -> None:
    """`tests/unit/console/follow/test_health.py` runs it."""
    how, program, flag, module = services["merger"]["healthcheck"]["test"]
    assert (how, program, flag) == ("CMD", "python", "-m")
    assert module == merger_health.__name__


def test_the_worker_is_asked_about_itself(services: dict[str, Service], tmp_path: Path) -> None:
    """Its check is run as it stands, against a server as the worker starts it: alive, hanging, and
    not there."""
    worker = services["worker"]
    how, program, *words = worker["healthcheck"]["test"]
    assert (how, program) == ("CMD", "python")
    port = int(worker["environment"]["TIDELINE_CAPTURE__METRICS_PORT"])
    assert f":{port}/healthz" in words[-1]
    other = free_port()
    words[-1] = words[-1].replace(f":{port}/", f":{other}/")

    def healthy() -> bool:
        done = subprocess.run([sys.executable, *words], capture_output=True, check=False)
        return done.returncode == 0

    assert not healthy()
    now = [0.0]
    health = Health(limit_s=150.0, clock=lambda: now[0])
    address = worker["environment"]["TIDELINE_CAPTURE__METRICS_ADDRESS"]
    serve(address, other, CollectorRegistry(), health)
    assert healthy()
    now[0] = 151.0
    assert not healthy()
    health.main.turn()
    assert healthy()


def test_valkey_asks_for_the_password_and_shows_it_to_nobody(
    services: dict[str, Service], tmp_path: Path
) -> None:
    """The container's command and check as they stand, with another server's folder."""
    port = free_port()
    (tmp_path / "valkey_password").write_text("given-canary")
    programs = tmp_path / "bin"
    programs.mkdir()
    server = programs / "valkey-server"
    server.write_text(f'#!/bin/sh\nexec {binary()} "$@" --port {port} --dir {tmp_path}\n')
    server.chmod(0o755)
    path = {"PATH": f"{programs}:/usr/bin:/bin"}

    def here(word: str) -> str:
        moved = word.replace("/run/secrets", str(tmp_path)).replace("/tmp/v", f"{tmp_path}/v")
        return moved.replace("$$", "$")

    words = [here(word) for word in services["valkey"]["command"]]
    with subprocess.Popen(words, env=path, stdout=subprocess.DEVNULL) as running:
        try:
            poll("it answers", lambda: answers(port, "given-canary"))
            assert not answers(port, None)
            shown = Path(f"/proc/{running.pid}/cmdline").read_bytes()
            assert b"valkey" in shown and b"canary" not in shown
            assert (tmp_path / "valkey.conf").stat().st_mode & 0o077 == 0
        finally:
            running.kill()


def answers(port: int, password: str | None) -> bool:
    with redis.Redis(port=port, password=password, socket_timeout=30) as client:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.AuthenticationError):
            return False


@pytest.mark.parametrize(
    ("files", "store"),
    [([], "s3://tideline/store"), (["docker-compose.yml"], "file:///var/lib/tideline/store")],
    ids=["as the example says", "in a volume"],
)
def test_compose_itself_accepts_the_files(tmp_path: Path, files: list[str], store: str) -> None:
    """Where the program is installed; the rules above stand in for it elsewhere."""
    program = compose_program()
    names = (ROOT / ".env.example").read_text()
    filled = tmp_path / ".env"
    filled.write_text(re.sub(r"^(\w+)=$", r"\1=given", names, flags=re.MULTILINE))
    empty = tmp_path / "empty"
    empty.write_text(names)
    chosen = [word for file in files for word in ("-f", file)]
    for variables, accepted in ((filled, True), (empty, False)):
        command = [*program, *chosen, "--env-file", str(variables), "config", "--format=json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert (done.returncode == 0) == accepted, done.stderr
        if accepted:
            services = json.loads(done.stdout)["services"]
            assert services["worker"]["environment"]["TIDELINE_STORE__URL"] == store
            assert ("s3" in services) == store.startswith("s3:")


def compose_program() -> list[str]:
    """Compose, as a program of its own or as docker's; skips the test where there is neither."""
    for program in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(program[0]) is not None:
            found = subprocess.run([*program, "version"], capture_output=True, check=False)
            if found.returncode == 0:
                return program
    pytest.skip("Docker Compose cannot be had on this machine")


def stages() -> dict[str, tuple[str, list[str]]]:
    """By name ("" is the image itself): what each stage of the Dockerfile begins with, and its
    lines."""
    found: dict[str, tuple[str, list[str]]] = {}
    name = ""
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        begins = re.fullmatch(r"FROM (\S+)(?: AS (\w+))?", line)
        if begins:
            name = begins[2] or ""
            found[name] = (begins[1], [])
        elif name in found:
            found[name][1].append(line)
    return found


def copied(name: str) -> set[str]:
    """What is copied into a stage, and into those that it is built on."""
    base, lines = stages()[name]
    words = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    return words | (copied(base) if base in stages() else set())


def test_the_image_gets_every_package_and_what_airflow_loads() -> None:
    sources = copied("")
    packages = {path.parent.parent.name for path in ROOT.glob("*/tideline_*/__init__.py")}
    assert len(packages) == 6
    assert packages | {"tideline", "pyproject.toml", "requirements"} <= sources
    made = {"--from=listed", "/home/tideline/image.cdx.json"}
    assert {one for one in sources if one.startswith(("-", "/"))} == made
    for source in sources - made:
        assert os.path.exists(ROOT / source), source


def test_what_only_development_needs_is_in_no_image() -> None:
    """The stage that lists the image has the program for it."""
    named = {one: {word for word in copied(one) if "devtools" in word} for one in stages()}
    program = {"devtools/__init__.py", "devtools/supply"}
    assert named == {"tideline": set(), "listed": program, "": set()}
