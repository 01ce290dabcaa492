"""Pages and pictures that a notebook shows by itself."""
