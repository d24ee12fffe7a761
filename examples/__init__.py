"""Programs that use change events, each with servers of its own: `python -m examples.NAME`."""
