"""A Flower app that tunes an SVM on uneven shares of a data set."""
