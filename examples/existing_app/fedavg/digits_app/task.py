"""The model, its data, and how it is trained and evaluated."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def load_data(partition_id: int, num_partitions: int):
    """This client's share of the digits, divided into a part to train on and one to test on."""
    x, y = load_digits(return_X_y=True)
    mine = np.arange(len(y)) % num_partitions == partition_id
    return train_test_split(x[mine] / 16.0, y[mine], test_size=0.3, random_state=0)


def new_model(learning_rate: float, penalty: float) -> SGDClassifier:
    """A linear model whose weights are all zero."""
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=learning_rate, alpha=penalty, random_state=0
    )
    model.classes_ = np.arange(10)
    return set_weights(model, [np.zeros((10, 64)), np.zeros(10)])


def get_weights(model: SGDClassifier) -> list[np.ndarray]:
    return [model.coef_, model.intercept_]


def set_weights(model: SGDClassifier, weights: list[np.ndarray]) -> SGDClassifier:
    model.coef_, model.intercept_ = (w.copy() for w in weights)
    return model


def train(model: SGDClassifier, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    for _ in range(epochs):
        model.partial_fit(x, y, classes=np.arange(10))


def accuracy(model: SGDClassifier, x: np.ndarray, y: np.ndarray) -> float:
    return float(model.score(x, y))
