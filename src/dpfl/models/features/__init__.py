"""Fixed features of images, which need no private data."""
