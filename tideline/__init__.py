"""The packages that all of Tideline shares: the contract, the store, the settings, the planner."""
