"""Requests and commands from the queue, and the requests of the worker itself."""
