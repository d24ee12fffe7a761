"""Development tools: servers, demo, simulator, benchmarks, supply chain."""
