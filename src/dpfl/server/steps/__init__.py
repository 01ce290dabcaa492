"""Policies for the number of local steps of a round: fixed, or chosen from a convergence bound."""
