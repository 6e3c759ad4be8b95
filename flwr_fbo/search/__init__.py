"""Maximise a function over a search space: candidates, climbs, sub-regions and partitions."""
