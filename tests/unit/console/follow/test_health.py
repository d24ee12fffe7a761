"""The health check of a merger's container, as it is run, with a real Valkey."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from devtools.services.valkey import ValkeyServer
from tests.fixtures.settings import as_toml
from tideline.control.merger import MergerQueue, MergerStatus
from tideline.settings import Control

STATUS = MergerStatus("m", "shop", "starting", "here", 7, 1, 2, reason="Java died")


def test_it_is_healthy_while_a_merger_merges(valkey: ValkeyServer, tmp_path: Path) -> None:
    control = {"url": valkey.url()}
    config = tmp_path / "tideline.toml"
    config.write_text(
        as_toml(
            {
                "pipeline": "shop",
                "source": {"url": "postgres://nobody@127.0.0.1:1/shop"},
                "store": {"url": (tmp_path / "store").as_uri()},
                "control": control,
                "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
            }
        )
    )

    def check() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tideline_console.follow.health"],
            env={**os.environ, "TIDELINE_CONFIG": str(config)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    code, text = check()
    assert code == 1 and "no merger" in text
    with closing(MergerQueue(Control.model_validate(control), "shop", "m", lease_s=600)) as queue:
        queue.renew()
        queue.publish(STATUS)
        code, text = check()
        assert code == 1 and "replaced because Java died" in text
        queue.publish(replace(STATUS, state="merging"))
        assert check() == (0, "")
    config.write_text(config.read_text().replace(valkey.url(), "redis://127.0.0.1:1/0"))
    code, text = check()
    assert code == 1 and text and "Traceback" not in text
