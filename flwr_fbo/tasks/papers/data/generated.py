"""Generated data in place of the real data: same shapes, classes and kinds of heterogeneity.

Generated data let a machine without network try every task. They are drawn, not measured: no
result on them says anything about the real data, and the name of every task that uses them ends
in "(generated data)". Each function draws the share of one party.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.tasks.papers.data.seir import Country
from flwr_fbo.tasks.papers.data.tables import Parties

#: Examples and their labels.
Labelled = tuple[NDArray[Any], NDArray[np.int64]]


def landmine_field(party: int, shared: np.random.Generator, own: np.random.Generator) -> Labelled:
    """Return a field of 445-690 locations with 9 features, 2.9-9.4 % of which hold a mine.

    As in the real data, the fields lie in two kinds of terrain. Mines lie elsewhere among the
    features for the first half of the parties than for the second half.
    """
    terrain = int(party >= 15)
    n = int(own.triangular(445, 450, 640))  # mean 512
    mines = max(13, round(n * own.uniform(0.029, 0.094)))
    clutter, directions = shared.normal(0, 1, (2, 9)), shared.normal(0, 1, (2, 9))
    directions *= 1.6 / np.linalg.norm(directions, axis=1, keepdims=True)
    y = np.zeros(n, dtype=np.int64)
    y[:mines] = 1
    X: Array = own.normal(0, 1, (n, 9)) * np.exp(own.normal(0, 0.1, 9))
    X += 0.5 * clutter[terrain] + own.normal(0, 0.2, 9)
    # Mines lie on both sides of the clutter, 70 % of them on one side.
    X[y == 1] += directions[terrain] * np.where(own.random((mines, 1)) < 0.7, 1.0, -1.0)
    order = own.permutation(n)
    return X[order], y[order]


def activity_subject(shared: np.random.Generator, own: np.random.Generator) -> Parties:
    """Return a subject's 281-409 windows of 561 features and 6 activities, in 24 chains.

    Activities are points of a space of 24 dimensions that all subjects share. Subjects, chains
    and windows deviate from these points, and neighbours in a chain resemble one another.
    """
    latent, features, chains = 24, 561, 24
    centres = shared.normal(0, 0.9, (6, latent))
    mixing = shared.normal(0, latent**-0.5, (latent, features))
    n = int(own.triangular(281, 330, 409))
    chain = np.sort(own.integers(chains, size=n))
    activity = (np.arange(chains) % 6)[chain]
    # Half of each step carries over to the next window of the same chain.
    steps = own.normal(0, 1.0, (n, latent))
    steps[1:] += 0.5 * steps[:-1] * (chain[1:] == chain[:-1])[:, None]
    shift, drift = own.normal(0, 0.5, latent), own.normal(0, 0.7, (chains, latent))
    hidden = centres[activity] + shift + drift[chain] + steps  # (n, latent)
    X = np.tanh(hidden @ mixing + own.normal(0, 0.3, (n, features))).astype(np.float32)
    return Parties(X, activity.astype(np.int64), np.zeros(n, dtype=np.int64), {"chain": chain})


def glasses_participant(shared: np.random.Generator, own: np.random.Generator) -> Labelled:
    """Return a participant's 242-3,416 windows of 57 features, about a sixth of them of eating."""
    direction = shared.normal(0, 1, 57)
    direction *= 1.5 / np.linalg.norm(direction)
    n = int(own.triangular(242, 2132, 3416))  # mean 1930
    y = (own.random(n) < own.uniform(0.1, 0.25)).astype(np.int64)
    habit = direction + own.normal(0, 0.1, 57)
    scale = np.exp(own.normal(0, 0.5, 57))
    X: Array = (own.normal(0, 1, (n, 57)) + np.outer(y, habit)) * scale + own.normal(0, 1, 57)
    return X, y


def digit_images(n: int, shared: np.random.Generator, own: np.random.Generator) -> Labelled:
    """Return images (n, 28, 28) of ten made-up characters in one handwriting.

    Ink is 1, background 0. All handwritings share the characters; each has its own slant,
    thickness and unsteadiness.
    """
    # A character is where a smooth random field is high, and fades towards the edge.
    from scipy import ndimage  # slow to import

    fields = ndimage.gaussian_filter(shared.normal(0, 1, (10, 28, 28)), (0, 2.5, 2.5))
    edge = np.hypot(*np.mgrid[-1:1:28j, -1:1:28j])
    characters = fields / fields.std(axis=(1, 2), keepdims=True) - 2.0 * np.maximum(edge - 0.6, 0)
    slant = np.array([[1.0, own.normal(0, 0.1)], [own.normal(0, 0.1), 1.0]])
    thickness, wobble = own.normal(0.6, 0.2), own.uniform(0.5, 1.0)
    labels = own.integers(10, size=n)
    X = np.empty((n, 28, 28), dtype=np.float32)
    for i, label in enumerate(labels):  # each image is distorted in its own way
        turn = slant + own.normal(0, 0.05, (2, 2))
        offset = 13.5 - turn @ np.array([13.5, 13.5]) + own.normal(0, 1.0, 2)
        X[i] = ndimage.affine_transform(characters[label], turn, offset, order=1, cval=-2.0)
    noise = ndimage.gaussian_filter(own.normal(0, 1, X.shape), (0, 1, 1)) * 3.5 * wobble
    ink = 1.0 / (1.0 + np.exp(-4.0 * (X + noise - thickness)))
    return ink.astype(np.float32), labels.astype(np.int64)


def generated_country(own: np.random.Generator) -> Country:
    """Return a country of a hundred thousand to a thousand million inhabitants."""
    population = round(10 ** own.uniform(5, 9))
    return Country(f"generated country of {population}", float(population))


def light_readings(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return readings (601, 41) and (192, 41) that follow the sun, with heavy tails."""
    places = rng.random((41, 2))
    window = np.exp(-3.0 * places[:, 0])  # the light falls off from one wall
    near = np.exp(-((places[:, None] - places[None]) ** 2).sum(-1) / 0.1)
    factor = np.linalg.cholesky(near + 1e-6 * np.eye(41))
    halves = []
    for n in (601, 192):
        sun = np.maximum(np.sin(np.linspace(0, 7 * np.pi, n)), 0)[:, None]
        glare = np.exp(0.8 * rng.normal(0, 1, (n, 41)) @ factor.T)
        halves.append(80.0 + 600.0 * sun * window * glare)
    return halves[0], halves[1]


def stock_prices(rng: np.random.Generator) -> Array:
    """Return prices (823, 29): geometric random walks with a common market factor."""
    market = rng.standard_t(3, (823, 1)) * 0.005
    own = rng.standard_t(3, (823, 29)) * 0.008
    start = np.exp(rng.uniform(np.log(20.0), np.log(160.0), 29))
    return np.asarray(start * np.exp(np.cumsum(0.0005 + market + own, axis=0)))
