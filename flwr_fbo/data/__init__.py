"""Data sets in the layouts their authors publish."""
