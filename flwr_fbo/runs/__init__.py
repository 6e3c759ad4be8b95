"""A run and its files: settings, journals, checkpoints, history, result. No Flower."""
