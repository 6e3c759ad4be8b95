"""Models of an objective: kernels, Gaussian processes, random features, prior mean."""
