"""What Tideline's rooms share: the contract, the store, the settings and the planner."""
