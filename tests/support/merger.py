"""A merger in a process of its own: ``python -m tests.support.merger CONFIG PROGRAM``.

``PROGRAM`` is the module of its session process. Leases are short, so that tests need not wait.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tideline.control import merger
from tideline.settings import load_settings
from tideline_console.follow import supervisor

LEASE_S = 2.0


def main() -> None:
    config, program = sys.argv[1:]
    merger.LEASE_S = LEASE_S
    supervisor.RENEW_S = 0.2
    supervisor.WAIT_S = 0.2
    sys.exit(supervisor.run(load_settings(config), Path(config), program))


if __name__ == "__main__":
    main()
