"""The object store: objects by key, the chain of manifests on top, and the probe at start-up."""
