"""The kinds of database for the demo's shop.

Their differences are behind `base.ShopDatabase`: scenes, traffic and comparison are the same for
every kind.
"""
