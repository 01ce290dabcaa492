"""The rules: each unit's gradient of one layer, from its input and the gradient at its output."""
