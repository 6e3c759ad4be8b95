"""The mathematics: numpy and scipy, never Flower."""
