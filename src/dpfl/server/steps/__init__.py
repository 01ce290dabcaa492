"""How many local steps a round has: fixed, or chosen from a convergence bound."""
