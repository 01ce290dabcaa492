"""Games that measure: canaries in real clients, and an adversary whose guesses give a lower bound
on epsilon, or an estimate.
"""
