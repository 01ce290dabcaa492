"""The web app of `dpfl ui`: pages in a browser over a folder of runs."""
