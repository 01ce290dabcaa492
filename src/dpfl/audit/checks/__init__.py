"""Games that check what a guarantee rests on: ledgers, masks, noise, draws and sensitivities."""
