"""A Spark that is started for places in S3: on no command line is a secret of theirs, no process
that it starts inherits one, and it trusts the authority that the settings name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from devtools.services.s3 import S3Server
from tests.fixtures.certificates import make_authority
from tests.fixtures.object_storage import NEEDS_S3
from tests.fixtures.settings import as_toml
from tests.fixtures.tls_front import TlsFront
from tideline.java import java_home
from tideline.settings import Store, make_settings
from tideline.store.objects import open_store
from tideline.warehouse.delta.jars import delta_jars
from tideline.warehouse.hadoop import handed_on, s3_settings
from tideline.warehouse.job_jars import job_jars
from tideline.warehouse.registry import open_reader

pytestmark = NEEDS_S3

ROOT = Path(__file__).resolve().parents[2]
WORK = """
import json, os, sys
from pathlib import Path
from tideline_spark.files import read_document, write_document

def lines():
    "The command line of every process of this user."
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace")
        except OSError:
            pass

def work(session):
    url, secret = sys.argv[1], Path(sys.argv[2]).read_text()
    told = [one for one in lines() if secret in one]
    session.range(5).write.format("delta").save(url + "/public/t")
    write_document(session, url + "/document.json", b"{}")
    seen = {
        "rows": session.read.format("delta").load(url + "/public/t").count(),
        "document": read_document(session, url + "/document.json").decode(),
        "command_lines": len(told),
        "inherited": [name for name, value in os.environ.items() if secret in value],
        "settings": secret in str(session.sparkContext.getConf().getAll()),
    }
    print("seen", json.dumps(seen), flush=True)
    return []
"""
CONSOLE = f"""{WORK}
from tideline_console.spark import spark_session
from tideline.settings import load_settings

with spark_session(load_settings(sys.argv[3]), "merge") as session:
    work(session)
"""
JOB = f"""{WORK}
from tideline_spark.entry import run_job

sys.exit(run_job(work, name="test", doing="testing"))
"""
REFUSED = """
import json, sys
from tideline.contract.errors import Misconfigured
from tideline.settings import load_settings
from tideline_console.spark import spark_session

try:
    with spark_session(load_settings(sys.argv[1]), "merge"):
        print("seen", json.dumps({"refused": None}))
except Misconfigured as error:
    print("seen", json.dumps({"refused": error.message}))
"""


def run(command: list[str], **more: str) -> dict[str, Any]:
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        **more,
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    [line] = [one for one in done.stdout.splitlines() if one.startswith("seen ")]
    found: dict[str, Any] = json.loads(line.removeprefix("seen "))
    return found


def test_jars_of_delta_alone_are_refused_by_name(tmp_path: Path) -> None:
    """Nothing is read: a place in S3 would be reached by a class that is not there."""
    values = {
        "pipeline": "p",
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": "s3://nowhere/store"},
        "warehouse": {"url": "s3://nowhere/warehouse"},
        "merge": {"driver_memory": "1g", "jars": ",".join(map(str, delta_jars()))},
    }
    config, program = tmp_path / "tideline.toml", tmp_path / "program.py"
    config.write_text(as_toml(values))
    program.write_text(REFUSED)
    found = run([sys.executable, str(program), str(config)])
    assert str(found["refused"]).startswith("jars for S3 are not in this Spark: hadoop-aws-")
    assert str(found["refused"]).endswith(", tideline-log-stores.jar")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["console", "job"])
def test_no_secret_is_on_a_command_line_and_the_authority_is_trusted(
    s3: S3Server, tmp_path: Path, way: str
) -> None:
    authority = make_authority(tmp_path)
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(s3.secret_access_key)
    keys = {name: value for name, value in s3.access.items() if name != "secret_access_key"}
    with TlsFront(tmp_path, authority, s3.port) as front:
        store = {
            "url": f"s3://tideline/{uuid.uuid4().hex}/store",
            **keys,
            "endpoint": f"https://127.0.0.1:{front.port}",
            "secret_access_key_file": str(secret),
            "ca_file": str(authority.file),
        }
        values = {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": store,
            "warehouse": {"url": f"s3://tideline/{uuid.uuid4().hex}"},
            "merge": {"driver_memory": "1g"},
        }
        settings = make_settings(values)
        program = tmp_path / "program.py"
        words = [settings.warehouse.url, str(secret)]
        if way == "console":
            config = tmp_path / "tideline.toml"
            config.write_text(as_toml(values))
            program.write_text(CONSOLE)
            found = run([sys.executable, str(program), *words, str(config)])
        else:
            program.write_text(JOB)
            jars = ",".join(str(jar) for jar in job_jars(settings))
            submit = ["spark-submit", "--master", "local[1]", "--driver-memory", "1g"]
            handed = handed_on(s3_settings(settings))
            found = run([*submit, "--jars", jars, str(program), *words], **handed)
        assert found == {
            "rows": 5,
            "document": "{}",
            "command_lines": 0,
            "inherited": [],
            "settings": True,
        }
        assert front.encrypted
        # Readers of tables and the store's client trust it, too.
        environment = os.environ.copy()
        try:
            place = settings.warehouse_storage
            reader = open_reader(f"{place.url}/public/t", place)
        finally:
            os.environ.clear()
            os.environ.update(environment)
        assert reader is not None
        assert open_store(settings.warehouse_store()).get("document.json") == b"{}"
    plain = Store(url=settings.warehouse.url, **s3.access)
    names = {key.rpartition("/")[2] for key in open_store(plain).list("")}
    assert f"{0:020d}.json" in names
