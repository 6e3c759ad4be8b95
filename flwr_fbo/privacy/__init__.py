"""Differential privacy: mechanisms, events, accountants, calibration, ledger and audit."""
