"""Models of an objective: kernels, Gaussian processes, random features and the prior mean."""
