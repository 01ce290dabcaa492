"""Plans noise, sampling and learning rate from a budget, before anything is spent."""
