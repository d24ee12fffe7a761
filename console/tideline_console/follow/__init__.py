"""``tideline merge --follow``: a merger, which merges new changes as they come, until a signal.

Two processes. The `supervisor` has the merger's lease, publishes its status, takes requests and
replaces the other one, without a Spark of its own. The `session_process` holds the Spark session
and merges (`rounds`); which tables are due is decided by `backlog`.
"""
