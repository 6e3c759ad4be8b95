"""Loaders of the data sets, in the layouts that their authors publish."""

from flwr_fbo.tasks.papers.data.bandits import (
    FiniteProblem,
    LightSensors,
    Stocks,
    light_problem,
    load_light_sensors,
    load_stocks,
    stock_problem,
)
from flwr_fbo.tasks.papers.data.emnist import load_digits_by_writer, load_emnist
from flwr_fbo.tasks.papers.data.gleam import load_gleam
from flwr_fbo.tasks.papers.data.har import load_har
from flwr_fbo.tasks.papers.data.landmine import load_landmine
from flwr_fbo.tasks.papers.data.mnist import load_mnist
from flwr_fbo.tasks.papers.data.seir import Country, Disease, SeirData, load_seir
from flwr_fbo.tasks.papers.data.sources import SOURCES, DataError, Source
from flwr_fbo.tasks.papers.data.store import cache_directory, find_data, require
from flwr_fbo.tasks.papers.data.tables import Parties

__all__ = [
    "SOURCES",
    "Country",
    "DataError",
    "Disease",
    "FiniteProblem",
    "LightSensors",
    "Parties",
    "SeirData",
    "Source",
    "Stocks",
    "cache_directory",
    "find_data",
    "light_problem",
    "load_digits_by_writer",
    "load_emnist",
    "load_gleam",
    "load_har",
    "load_landmine",
    "load_light_sensors",
    "load_mnist",
    "load_seir",
    "load_stocks",
    "require",
    "stock_problem",
]
