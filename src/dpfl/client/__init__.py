"""The client's side of a run, where the data is: local training, clipping, noise, the reply."""
