"""Settings of a pipeline whose servers are reached through proxies, or differ otherwise."""

from __future__ import annotations

import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from devtools.services.s3 import S3Server
from tests.fixtures.capture import PATIENT_STORE, Pipeline
from tests.fixtures.settings import Section, as_toml
from tests.support.proxy import LOOPBACK, Proxy

_ADDRESS = {"source": "url", "store": "endpoint", "control": "url"}


def rewired(
    pipeline: Pipeline[Any], proxies: Mapping[str, Proxy] | None = None, **sections: Section
) -> Path:
    """A settings file of the same pipeline, with ``sections`` changed, and the servers of the
    sections that ``proxies`` names behind these."""
    values = tomllib.loads(pipeline.config.read_text())
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    for name, proxy in (proxies or {}).items():
        values[name][_ADDRESS[name]] = through(proxy, values[name][_ADDRESS[name]])
    path = pipeline.config.with_name(f"{uuid.uuid4().hex[:8]}.toml")
    path.write_text(as_toml(values))
    return path


def patient(pipeline: Pipeline[Any]) -> Path:
    """A settings file of the same pipeline, for a worker that has patience with the store."""
    return rewired(pipeline, store=PATIENT_STORE)


def through(proxy: Proxy, url: str) -> str:
    """``url`` with the proxy's port."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    netloc = f"{login}@{LOOPBACK}:{proxy.port}" if login else f"{LOOPBACK}:{proxy.port}"
    return parts._replace(netloc=netloc).geturl()


def port_of(url: str) -> int:
    """The port that ``url`` names."""
    port = urlsplit(url).port
    assert port is not None, url
    return port


def on_s3(server: S3Server, **more: Any) -> dict[str, Any]:
    """The section ``store`` of settings that lie in that server, under a prefix of their own."""
    return {
        "url": f"s3://tideline/{uuid.uuid4().hex[:12]}",
        **server.access,
        **more,
    }
