"""What a budget buys, before anything is spent."""
