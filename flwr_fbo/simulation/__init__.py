"""Run a whole federation on one machine."""
