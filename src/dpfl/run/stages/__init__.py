"""The stages of `resolve` and of a proposal: from the algorithm that somebody asks for to the one
that runs, the model for the data, and the checks of both before any ledger is made.
"""
