"""The server's side of a run: the algorithm, the rounds, the aggregation and the steps of the
model.
"""
