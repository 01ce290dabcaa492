"""What happens where the data is: debit, local training, clip, noise, reply."""
