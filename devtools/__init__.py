"""What only development needs: servers, demo, simulator, benchmarks, supply chain."""
