"""HTTP endpoints as an output."""
