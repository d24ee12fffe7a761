"""The kinds of database that the demo's shop can be opened in.

All that differs between them is behind `base.ShopDatabase`: scenes, traffic and comparison are the
same for every kind.
"""
