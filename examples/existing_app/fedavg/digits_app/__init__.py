"""A Flower app as many start out with: FedAvg of a linear model."""
