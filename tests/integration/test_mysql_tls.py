"""TLS to MySQL and MariaDB: verified by default, and each ``ssl-mode`` means what it says."""

from __future__ import annotations

import uuid
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from devtools.services.binlog_server import BinlogServer
from tests.fixtures.certificates import Authority, make_authority, serve_tls
from tests.fixtures.mysql_servers import Flavour, ServerFactory
from tideline.contract.errors import Misconfigured
from tideline.settings import SourceSettings
from tideline_capture.sources.finding import SecuredSession
from tideline_capture.sources.mysql.checks.facts import read_server
from tideline_capture.sources.mysql.connect import connect


def cipher(server: BinlogServer, query: str) -> str:
    """The cipher of a connection made with ``query`` behind the url; empty when it has none."""
    url = server.url().partition("?")[0]
    source = SourceSettings(url=SecretStr(f"{url}?{query}" if query else url))
    connection = connect(source, application_name="test")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            return str(cursor.fetchone()[1])
    finally:
        connection.close()


def ca(authority: Authority) -> str:
    return f"ssl-ca={quote(str(authority.file), safe='')}"


def refused(server: BinlogServer, query: str) -> None:
    with pytest.raises(Misconfigured, match="TLS") as caught:
        cipher(server, query)
    assert server.password not in f"{caught.value}{caught.value.hint}"
    assert "ssl-" in str(caught.value.hint)


def test_the_modes(flavour: Flavour, start_server: ServerFactory, tmp_path: Path) -> None:
    server = start_server(flavour)
    own, other = make_authority(tmp_path), make_authority(tmp_path, "other")
    serve_tls(server, own)
    assert cipher(server, "ssl-mode=DISABLED") == ""
    assert cipher(server, "ssl-mode=REQUIRED")
    assert cipher(server, f"ssl-mode=VERIFY_CA&{ca(own)}")
    assert cipher(server, ca(own)), "verified is the default"
    refused(server, "")  # the machine's authorities do not know ours
    for mode in ("VERIFY_CA", "VERIFY_IDENTITY"):
        refused(server, f"ssl-mode={mode}&{ca(other)}")
    serve_tls(server, own, "127.0.0.2")
    assert cipher(server, f"ssl-mode=VERIFY_CA&{ca(own)}")
    refused(server, ca(own))


def test_a_server_without_tls_is_refused_unless_it_is_disabled(
    flavour: Flavour, start_server: ServerFactory
) -> None:
    if flavour == "mariadb":
        server = start_server(flavour)
    else:
        server = (
            start_server(flavour, tls_version="")
            if flavour == "mysql9"
            else start_server(flavour, ssl="OFF")
        )
    assert cipher(server, "ssl-mode=DISABLED") == ""
    for query in ("", "ssl-mode=REQUIRED", "ssl-mode=VERIFY_CA"):
        refused(server, query)


def test_the_certificates_that_mysql_makes_for_itself(mysql8: BinlogServer) -> None:
    """They name no host: good for VERIFY_CA, not for more."""
    authority = f"ssl-ca={quote(str(mysql8.data / 'ca.pem'), safe='')}"
    assert cipher(mysql8, f"ssl-mode=VERIFY_CA&{authority}")
    refused(mysql8, authority)


def test_an_authority_that_cannot_be_read_is_named(mysql8: BinlogServer, tmp_path: Path) -> None:
    file = tmp_path / "nothing.pem"
    for text in (None, "no certificate"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(Misconfigured, match="ssl-ca"):
            cipher(mysql8, f"ssl-ca={quote(str(file), safe='')}")


@pytest.mark.parametrize("password", ["pässwörd", "пароль", "p€ss"])
def test_passwords_in_any_charset(
    password: str, flavour: Flavour, mysql_server: BinlogServer, tmp_path: Path
) -> None:
    """As UTF-8, like the servers' own clients send them."""
    name = f"user_{uuid.uuid4().hex[:8]}"
    mysql_server.run(f"CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY '{password}'")
    file = tmp_path / "password"
    file.write_text(f"{password}\n", encoding="utf-8")
    in_url = mysql_server.url(name, password)
    other = mysql_server.url(name, "another")
    try:
        for source in (
            SourceSettings(url=SecretStr(in_url)),
            SourceSettings(url=SecretStr(other), password=SecretStr(password)),
            SourceSettings(url=SecretStr(other), password_file=file),
        ):
            connect(source, application_name="test").close()
        with pytest.raises(Misconfigured, match="refuses us"):
            connect(SourceSettings(url=SecretStr(other)), application_name="test")
    finally:
        mysql_server.run(f"DROP USER '{name}'@'127.0.0.1'")


@pytest.mark.parametrize(
    ("query", "encrypted", "verified"),
    [("ssl-mode=DISABLED", False, False), ("ssl-mode=REQUIRED", True, False), ("", True, True)],
)
def test_doctor_knows_how_the_session_is_secured(
    query: str, encrypted: bool, verified: bool, mysql8: BinlogServer, tmp_path: Path
) -> None:
    if verified:
        query = f"ssl-mode=VERIFY_CA&ssl-ca={quote(str(mysql8.data / 'ca.pem'), safe='')}"
    source = SourceSettings(url=SecretStr(f"{mysql8.url().partition('?')[0]}?{query}"))
    connection = connect(source, application_name="test")
    try:
        assert read_server(connection).session == SecuredSession(True, encrypted, verified)
    finally:
        connection.close()
