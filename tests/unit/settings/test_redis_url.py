"""The url of the queue: what it refuses, and whether the connection is safe."""

from __future__ import annotations

import traceback

import pytest
from pydantic import SecretStr

from tideline.contract.errors import Misconfigured
from tideline.settings import Control, make_settings
from tideline.settings.redis_url import redis_doubt

SECRET = "hunter2-öß%@"


def control(url: str) -> None:
    make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://tide@db/shop"},
            "store": {"url": "s3://lake/segments"},
            "control": {"url": url},
            "warehouse": {"url": "s3://lake/warehouse"},
        }
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1/0?foo=1", "may have db"),
        ("redis://127.0.0.1/0?ssl_ca_certs=/ca.pem", "may have db"),
        (f"redis://127.0.0.1/0?password={SECRET}", "may have db"),
        ("rediss://127.0.0.1/0?ssl_cert_reqs=maybe", "none, optional, required"),
        ("rediss://127.0.0.1/0?ssl_check_hostname=sometimes", "ssl_check_hostname"),
        ("redis://127.0.0.1/?db=x", "a number in db"),
        ("redis://127.0.0.1:70000/0", "port from 1 to 65535"),
        ("redis://:hunter2/x@127.0.0.1:6379/0", "port from 1 to 65535"),
        ("redis://h:hunter2@h:pw/0", "port from 1 to 65535"),
        (f"http://{SECRET}", "must be redis://"),
        (f"redis://:{SECRET}℀@127.0.0.1", "percent-encoded"),
    ],
)
def test_what_a_url_of_the_queue_refuses(url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"control\.url: .*{reason}") as caught:
        control(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "doubt"),
    [
        ("redis://127.0.0.1/0", None),
        ("redis://localhost", None),
        ("redis://[::1]:6379/0", None),
        ("unix:///run/valkey.sock?db=1", None),
        ("rediss://db.example/0?ssl_ca_certs=/ca.pem", None),
        ("redis://db.example/0", "not encrypted"),
        ("redis://10.0.0.7/0", "not encrypted"),
        ("rediss://db.example/0?ssl_cert_reqs=none", "not verified"),
        ("rediss://db.example/0?ssl_cert_reqs=optional", "not verified"),
        ("rediss://db.example/0?ssl_check_hostname=False", "not verified"),
    ],
)
def test_who_could_read_along_at_the_queue(url: str, doubt: str | None) -> None:
    Control(url=SecretStr(url))
    found = redis_doubt(url, "control.url")
    assert (found is None) if doubt is None else (found is not None and doubt in found[0])
