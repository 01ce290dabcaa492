"""Pages, tables and figures for people. View objects hold every sentence and figure; packages lay
them out.
"""
