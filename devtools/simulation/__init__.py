"""The deterministic simulator: seeded faults around the real core, and the oracle that judges."""
