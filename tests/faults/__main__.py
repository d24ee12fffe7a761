"""``python -m tests.faults``: the long form. A module of this name is not imported again by every
worker process that is forked."""

import sys

from tests.faults.long import main

if __name__ == "__main__":
    sys.exit(main())
