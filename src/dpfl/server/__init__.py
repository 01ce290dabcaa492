"""The server's side of a run: algorithm, rounds, aggregation and steps of the model."""
