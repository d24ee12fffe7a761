"""docker-compose.yml without an engine: well-formed, no secret in it, and the demo's commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pydantic import SecretStr

from console.services import airflow, commands
from console.services.binlog_server import SETTINGS
from console.services.mariadb import MariadbServer
from console.services.mysql import MysqlServer
from console.status_document import Status, WorkerState
from tests.fixtures.mysql_servers import GRANTS
from tideline.delta_jars import VERSION
from tideline.settings import Source, make_settings

ROOT = Path(__file__).resolve().parents[2]
SERVICE_KEYS = {
    "build", "command", "depends_on", "environment", "healthcheck", "image", "ports", "profiles",
    "restart", "stop_grace_period", "volumes",
}  # fmt: skip
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<kind>:-|:\?)(?P<text>[^}]*))?\}")
SECRET = re.compile(r"PASSWORD$|SECRET|FERNET|ACCESS_KEY|SQL_ALCHEMY_CONN|CONTROL__URL")

Service = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    found: dict[str, Service] = compose["services"]
    return found


def ours(services: dict[str, Service]) -> dict[str, Service]:
    return {name: service for name, service in services.items() if service["image"] == "tideline"}


def interpolated(text: str) -> str:
    """What compose makes of ``text`` when every variable without a default is ``given``."""
    return VARIABLE.sub(lambda m: m["text"] if m["kind"] == ":-" else "given", text)


def test_every_command_of_ours_is_one_that_the_demo_runs(services: dict[str, Service]) -> None:
    run = sorted(tuple(service["command"]) for service in ours(services).values())
    assert run == sorted([commands.worker(), commands.AIRFLOW_MIGRATE, *commands.AIRFLOW.values()])
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
    wanted = {**SETTINGS, **own.OWN_SETTINGS}
    assert {
        key.replace("-", "_"): value for key, value in options.items()
    }.items() <= wanted.items()
    assert {"log-bin", "binlog-format", "binlog-row-image", "binlog-row-metadata"} <= options.keys()
    prefix = SOURCES[name]
    assert service["environment"][f"{prefix}_USER"] == "tideline"
    assert f"{prefix}_DATABASE" not in service["environment"], "its user would own all of it"


def test_the_urls_of_the_example_are_ones_that_settings_accept() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    urls = {word[11:] for line in lines for word in line.split() if word.startswith("SOURCE_URL=")}
    found = {Source(url=SecretStr(url)).kind for url in urls}
    assert found == {"postgres", "mysql", "mariadb"}


def test_the_grants_are_those_that_the_tests_run_with() -> None:
    lines = (ROOT / "scripts" / "grant-capture.sh").read_text().splitlines()
    granted = [line.rstrip(";") for line in lines if line.startswith("GRANT")]
    names = {"user": "tideline", "database": "shop", "watermarks": "tideline"}
    assert granted == [grant.format(**names) for grant in GRANTS]
    for page in ("README.md", "docs/GRANTS.md"):
        text = (ROOT / page).read_text().replace("'tideline'@'…'", "tideline").replace("`", "")
        shown = [line.partition(";")[0] for line in text.splitlines() if "TO tideline;" in line]
        assert [line for line in shown if line in granted] == granted, page


def test_volumes_are_declared_and_used(compose: dict[str, Any]) -> None:
    mounted = {
        volume.partition(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
    }
    assert {name for name in mounted if not name.startswith(".")} == compose["volumes"].keys()


def test_what_runs_on_is_restarted_and_has_a_health_check(services: dict[str, Service]) -> None:
    for name, service in services.items():
        if service["restart"] != "no":
            assert service["restart"] == "unless-stopped", name
            assert {"test", "interval", "timeout", "retries"} <= service["healthcheck"].keys(), name


def test_only_the_ui_is_published_and_on_loopback(services: dict[str, Service]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"airflow-api-server": ["127.0.0.1:8080:8080"]}


def test_secrets_come_from_the_environment_and_must_be_given(services: dict[str, Service]) -> None:
    seen = 0
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if SECRET.search(key) and "PASSWORDS_FILE" not in key:
                assert any(match["kind"] == ":?" for match in VARIABLE.finditer(value)), (name, key)
                seen += 1
    assert seen > 10


def test_the_example_names_every_variable_that_must_be_given() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    wanted = {match["name"] for match in VARIABLE.finditer(text) if match["kind"] == ":?"}
    lines = (ROOT / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert wanted == given.keys() - {"COMPOSE_PROFILES"}
    assert not any(given[name] for name in wanted), "an example secret would be used as it is"


def test_the_worker_gets_settings_that_it_accepts(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("worker", "airflow-scheduler"):
        for key, value in services[name]["environment"].items():
            if key.startswith("TIDELINE_") and key != "TIDELINE_MERGE_SCHEDULE":
                monkeypatch.setenv(key, interpolated(value))
        settings = make_settings({"pipeline": "shop"})
        assert settings.source.dsn() == "postgresql://tideline:given@source:5432/shop"
        assert settings.control.url.get_secret_value() == "redis://:given@valkey:6379/0"
    assert settings.merge.jars is not None
    assert Path(settings.merge.jars).parent.name == f"delta-{VERSION}"


@pytest.mark.parametrize("state", list(WorkerState))
def test_the_worker_is_healthy_when_it_reads_or_waits(
    services: dict[str, Service], state: WorkerState, tmp_path: Path
) -> None:
    """Its check is run as it stands, with a ``tideline`` that prints such a status."""
    document = msgspec.json.encode(Status(pipeline="shop", at_us=0, worker=state))
    (tmp_path / "status").write_bytes(msgspec.json.format(document))
    program = tmp_path / "tideline"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/status\n")
    program.chmod(0o755)
    how, check = services["worker"]["healthcheck"]["test"]
    assert how == "CMD-SHELL"
    done = subprocess.run(
        ["sh", "-c", check], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False
    )
    assert (done.returncode == 0) == (state in (WorkerState.LIVE, WorkerState.PASSIVE))


def test_compose_itself_accepts_the_file(tmp_path: Path) -> None:
    """Where the program is installed; the rules above stand in for it elsewhere."""
    names = (ROOT / ".env.example").read_text()
    filled = tmp_path / ".env"
    filled.write_text(re.sub(r"^(\w+)=$", r"\1=given", names, flags=re.MULTILINE))
    command = ["-f", str(ROOT / "docker-compose.yml"), "--env-file", str(filled), "config", "-q"]
    for program in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(program[0]) is None:
            continue
        if subprocess.run([*program, "version"], capture_output=True, check=False).returncode:
            continue
        done = subprocess.run([*program, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_image_gets_every_package_and_what_airflow_loads() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = {word for line in copied for word in line.split()}
    packages = {
        path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"
    }
    assert packages | {"dags", "plugins", "pyproject.toml", "constraints.txt"} <= sources
    for source in sources:
        assert os.path.exists(ROOT / source), source
