"""The files of a run: its folder, record, checkpoint, weights and model card, and the digests that
name them. `folder.py` puts the files together.
"""
