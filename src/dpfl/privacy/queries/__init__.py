"""Private questions that clients answer once: means, label counts, column scales, metrics."""
