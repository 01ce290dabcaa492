"""Tables: what their columns are declared to mean, and how their rows become numbers."""
