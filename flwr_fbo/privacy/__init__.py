"""Privacy: mechanisms, events, accountants, calibration, ledger, audit. Never Flower."""
