"""Tasks of the four papers, and the loaders of their data sets in ``data``."""
