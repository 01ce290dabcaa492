"""What a node keeps on its disk: its locked folder, the log of its tasks, and its log file."""
