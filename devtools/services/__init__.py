"""Servers and downloads that the demo, the tests and the benchmarks run without Docker.

Every server comes from a wheel, listens on loopback only, and is one child process in a process
group of its own. Nothing here is needed in a deployment that brings its own servers.
"""
