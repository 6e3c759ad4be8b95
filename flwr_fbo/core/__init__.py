"""The vocabulary of the package: parameters, spaces, settings, messages and evaluations."""
