"""TLS to PostgreSQL: verified by default, and each ``sslmode`` means what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from pydantic import SecretStr

from tests.fixtures.capture import PipelineFactory
from tests.fixtures.certificates import Authority, make_authority
from tests.fixtures.services import Database
from tests.fixtures.tls_front import TlsFront
from tideline.contract.errors import Misconfigured
from tideline.settings import SourceSettings
from tideline_capture.sources.finding import SecuredSession
from tideline_capture.sources.postgres.checks.facts import read_server
from tideline_capture.sources.postgres.connect import connect

PASSWORDS = ("pässwörd", "пароль", "p€ss", "ﬁne pass")
"""In Latin-1, and not; the last one is another text once it is prepared as SCRAM wants it."""


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


@pytest.fixture
def front(database: Database, tmp_path: Path, own: Authority) -> Iterator[TlsFront]:
    with TlsFront(tmp_path, own, port_of(database), postgres=True) as front:
        yield front


def port_of(database: Database) -> int:
    port = urlsplit(database.dsn).port
    assert port is not None
    return port


def through(database: Database, port: int, query: str) -> str:
    parts = urlsplit(database.dsn)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@127.0.0.1:{port}", query=query).geturl()


def session(database: Database, port: int, query: str) -> SecuredSession:
    """How a connection with ``query`` behind the url is secured."""
    source = SourceSettings(url=SecretStr(through(database, port, query)))
    with closing(connect(source, application_name="test")) as connection:
        return read_server(connection).session


def refused(database: Database, port: int, query: str, *words: str) -> None:
    with pytest.raises(Misconfigured, match="no verified TLS") as caught:
        session(database, port, query)
    text = f"{caught.value} {caught.value.hint}"
    assert str(urlsplit(database.dsn).password) not in text
    for word in words:
        assert word in text


def ca(authority: Authority) -> str:
    return f"sslrootcert={quote(str(authority.file), safe='')}"


def test_the_modes(database: Database, front: TlsFront, own: Authority, tmp_path: Path) -> None:
    other = make_authority(tmp_path, "other")
    verified, unverified = SecuredSession(True, True, True), SecuredSession(True, True, False)
    assert session(database, front.port, ca(own)) == verified, "verified is the default"
    assert session(database, front.port, f"sslmode=verify-ca&{ca(own)}") == verified
    for mode in ("require", "prefer"):
        assert session(database, front.port, f"sslmode={mode}") == unverified
    assert front.encrypted == 4
    assert session(database, front.port, "sslmode=disable") == SecuredSession(True, False, False)
    assert front.encrypted == 4
    refused(database, front.port, "", "certificate verify failed", "sslrootcert=")
    for mode in ("verify-ca", "verify-full"):
        refused(database, front.port, f"sslmode={mode}&{ca(other)}", "certificate verify failed")


def test_a_certificate_for_another_host(database: Database, own: Authority, tmp_path: Path) -> None:
    with TlsFront(tmp_path, own, port_of(database), address="127.0.0.2", postgres=True) as front:
        refused(database, front.port, ca(own), "does not match host name", "let source.url name")
        assert session(database, front.port, f"sslmode=verify-ca&{ca(own)}").verified


def test_a_server_without_tls(database: Database, own: Authority) -> None:
    for query in ("", "sslmode=require", ca(own)):
        refused(database, port_of(database), query, "does not support SSL", "?sslmode=disable")
    assert not session(database, port_of(database), "sslmode=prefer").encrypted


def test_what_the_environment_says(
    database: Database, front: TlsFront, own: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name authorities, and makes nothing weaker."""
    monkeypatch.setenv("PGSSLMODE", "disable")
    refused(database, front.port, "", "certificate verify failed")
    for variable in ("SSL_CERT_FILE", "PGSSLROOTCERT"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(own.file))
            assert session(database, front.port, "").verified
    monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
    assert session(database, front.port, "sslrootcert=system").verified
    monkeypatch.delenv("SSL_CERT_FILE")
    refused(database, front.port, "sslrootcert=system")


def test_libpqs_own_file_counts(
    database: Database,
    front: TlsFront,
    own: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``~/.postgresql/root.crt``. libpq asks for the home by itself: a process of its own."""
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").write_bytes(own.file.read_bytes())
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session(database, front.port, "").verified


def test_authorities_that_cannot_be_read(
    database: Database, front: TlsFront, tmp_path: Path
) -> None:
    file = tmp_path / "nothing.pem"
    query = f"sslrootcert={quote(str(file), safe='')}"
    for text in (None, "no certificate"):
        if text is not None:
            file.write_text(text)
        refused(database, front.port, query, "nothing.pem", "correct sslrootcert")


def test_doctor_and_worker(
    database: Database, front: TlsFront, own: Authority, pipeline_of: PipelineFactory
) -> None:
    """Every connection of a worker, the stream's too, goes as the url says."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    url = through(database, front.port, ca(own))
    pipeline = pipeline_of(database, source={"url": url})
    pipeline.drain()
    assert pipeline.rows_of("r") == 1
    assert front.encrypted > 2
    found = doctor(pipeline_of(database, source={"url": through(database, front.port, "")}).config)
    assert found.returncode == 2
    assert "ERROR   source: no verified TLS to the source" in found.stdout
    assert "fix: sslrootcert=/path/to/ca.pem in source.url" in found.stdout


def doctor(config: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tideline")), "doctor", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("query", ["sslmode=disable", "sslmode=require", "sslmode=prefer"])
def test_doctor_warns_of_another_machine(
    query: str,
    database: Database,
    front: TlsFront,
    pipeline_of: PipelineFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tideline_console import doctor as looks

    monkeypatch.setattr(
        "tideline_capture.sources.postgres.checks.facts.stays_here", lambda fd: False
    )
    pipeline = pipeline_of(database, source={"url": through(database, front.port, query)})
    findings = {one.name: one for one in looks.check_source(pipeline.settings)}
    assert findings["encryption"].level == "warning"
    assert "verify-full" in str(findings["encryption"].fix)


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("given", ["url", "setting", "file"])
def test_passwords_in_any_charset(
    password: str, given: str, database: Database, tmp_path: Path
) -> None:
    role = f"role_{database.name}"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    try:
        values: dict[str, Any] = {"url": _login(database, role, None)}
        if given == "url":
            values = {"url": _login(database, role, password)}
        elif given == "setting":
            values["password"] = password
        else:
            values["password_file"] = tmp_path / "password"
            values["password_file"].write_bytes(f"{password}\n".encode())
        connect(SourceSettings(**values), application_name="test").close()
    finally:
        database.run(f"DROP ROLE {role}")


def _login(database: Database, role: str, password: str | None) -> str:
    parts = urlsplit(database.dsn)
    secret = "" if password is None else f":{quote(password, safe='')}"
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role}{secret}@{host}").geturl()
