"""Tasks of the four papers' experiments, and in ``data`` the loaders of their data sets."""
