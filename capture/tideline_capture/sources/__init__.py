"""Log sources. Only the registry knows the concrete ones."""
