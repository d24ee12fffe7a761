"""Merge plans: made purely from manifests and from what the targets have applied."""
