"""Side-by-side measurements; ``python -m benchmarks`` runs them. See README.md."""
