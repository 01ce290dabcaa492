"""A search for inputs that make one unit move a clipped sum further than its clip norm."""
