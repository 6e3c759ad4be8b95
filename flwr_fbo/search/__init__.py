"""Searches for the maximum over a space: candidates, ascents, sub-regions and trees."""
