"""DP-FTS-DE: a trusted server releases noisy sums of the agents' vectors."""
