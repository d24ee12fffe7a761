"""Servers and downloads that the demo, the tests and the benchmarks run without Docker.

Every server comes from a wheel, listens on loopback only, and is one child process in its own
process group. A deployment with its own servers needs none of this.
"""
