"""Side-by-side measurements; ``python -m devtools.benchmarks`` runs them. See README.md."""
