"""The own keys and the url of MySQL and MariaDB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.source_settings import settings
from tideline.contract.errors import Misconfigured
from tideline.settings.sources.mysql import MysqlAddress, MysqlSection, mysql_address

SECRET = "hunter2-öß%@"


KEYS: dict[str, Any] = {
    "read_only": True,
    "watermark_database": "own",
    "xa": "refuse",
    "cascades": "redump",
    "on_gap": "dump",
}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_all_own_keys(kind: str) -> None:
    source = settings(f"{kind}://tide@db", **KEYS).source
    assert source.kind == kind
    own = source.section(MysqlSection)
    assert {key: getattr(own, key) for key in MysqlSection.model_fields} == KEYS
    plain = settings(f"{kind}://tide@db/").source.section(MysqlSection)
    assert (plain.read_only, plain.watermark_database) == (False, "tideline")
    assert (plain.xa, plain.cascades, plain.on_gap) == ("hold", "refuse", "stop")


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "x" * 65])
def test_the_watermark_database_is_a_plain_name(name: str) -> None:
    with pytest.raises(Misconfigured, match=r"source\.watermark_database"):
        settings("mysql://tide@db/", watermark_database=name)


def test_the_least_of_a_mysql_address() -> None:
    address = mysql_address("mysql://tide@db.example")
    assert address == MysqlAddress("db.example", 3306, "tide", "", "VERIFY_IDENTITY", None)


def test_all_of_a_mysql_address(tmp_path: Path) -> None:
    url = "mariadb://a%40b:p%2F%3F%C3%B6@[::1]:3307/any?ssl-mode=verify_ca&ssl-ca=%2Fetc%2Fca.pem"
    assert mysql_address(url) == MysqlAddress(
        "::1", 3307, "a@b", "p/?ö", "VERIFY_CA", Path("/etc/ca.pem")
    )
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    source = settings(url, password_file=file).source
    address = mysql_address(url, source.secret())
    assert address == replace(mysql_address(url), password=SECRET)
    assert SECRET not in repr(address)
    assert source.dsn().startswith("mariadb://a%40b:hunter2-%C3%B6%C3%9F%25%40@[::1]:3307/any?ssl")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://", "name a host and a user"),
        ("mysql://db/", "name a host and a user"),
        ("mysql://tide@/", "name a host and a user"),
        ("mysql://tide@db:0/", "port from 1 to 65535"),
        ("mysql://tide@db:99999/", "port from 1 to 65535"),
        ("mysql://tide@db/?sslmode=require", "ssl-mode and ssl-ca behind"),
        ("mysql://tide@db/?ssl-mode=REQUIRED&ssl-key=x", "ssl-mode and ssl-ca behind"),
        ("mysql://tide@db/?ssl-mode=REQUIRED&ssl-mode=DISABLED", "twice"),
        ("mysql://tide@db/?ssl-mode=PREFERRED", "DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY"),
        ("mysql://tide@db/?ssl-mode=", "DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY"),
        ("mysql://tide@db/?ssl-ca=", "a file's path in ssl-ca"),
        ("mysql://tide@db/?ssl-mode=REQUIRED&ssl-ca=/ca.pem", "does not look at"),
    ],
)
def test_what_a_mysql_url_refuses(url: str, reason: str) -> None:
    for text in (url, url.replace("mysql:", "mariadb:")):
        with pytest.raises(Misconfigured, match=rf"source\.url: .*{reason}"):
            settings(text)
