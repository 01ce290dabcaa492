"""What happens where a client's data is: local training, clipping, noise, the reply."""
