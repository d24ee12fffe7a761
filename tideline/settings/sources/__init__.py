"""The settings that only one kind of source has: a module for each, named in the registry.

A module holds the section with the kind's own keys of ``[source]``, the check of its url, and what
else its code reads from the url.
"""
