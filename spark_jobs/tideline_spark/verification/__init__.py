"""Comparisons of a table's rows: with its source's, or with those of a rebuilt one."""
