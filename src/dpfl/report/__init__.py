"""The old home of what is in `dpfl.views` now; it goes in version 0.3."""
