"""Table formats: all that knows Delta is in `delta`."""
