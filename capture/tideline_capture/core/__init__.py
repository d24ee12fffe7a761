"""The worker's decisions, sans I/O.

Events go in, decisions come out; the core never waits, never reads a clock and never opens a
socket. It runs in one thread (the log reader's). Its decisions become durable elsewhere
(`tideline_capture.runtime`), and a core built from the chain's tail decides the same again.
"""
