"""Where data sets come from: downloads and file formats."""
