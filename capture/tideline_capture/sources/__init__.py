"""Log sources. Only the registry knows of concrete ones."""
