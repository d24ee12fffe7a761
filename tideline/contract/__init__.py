"""The pure contract between the rooms.

Only the standard library and msgspec are imported here: no clock, socket, driver, pyarrow or
pyspark. Everything takes values and returns values, so that capture, planner, merge and simulator
can share it and tests need no service.
"""
