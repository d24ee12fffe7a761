"""Checks of a MySQL or MariaDB before capture runs."""
