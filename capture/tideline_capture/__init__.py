"""The capture worker: reads a source's log and dumps, writes the chain."""
