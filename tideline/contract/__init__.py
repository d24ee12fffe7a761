"""The pure contract between Tideline's packages.

Only the standard library and msgspec are imported here: no clock, socket, driver, pyarrow or
pyspark. Everything takes values and returns values, so that capture, planner, merge and simulator
can share it and tests need no service.
"""
