"""The local agent of FTS and DP-FTS-DE: a Gaussian process, and the vector that it shares."""
