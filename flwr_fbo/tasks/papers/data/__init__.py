"""Data sets in the layouts their authors publish."""

from flwr_fbo.tasks.papers.data.bandits import (
    FiniteProblem,
    LightSensors,
    Stocks,
    light_problem,
    light_sensors,
    stock_problem,
    stocks,
)
from flwr_fbo.tasks.papers.data.emnist import digits_by_writer, emnist
from flwr_fbo.tasks.papers.data.errors import DataError
from flwr_fbo.tasks.papers.data.gleam import gleam
from flwr_fbo.tasks.papers.data.har import har
from flwr_fbo.tasks.papers.data.landmine import landmine
from flwr_fbo.tasks.papers.data.mnist import mnist
from flwr_fbo.tasks.papers.data.seir import Country, Disease, SeirData, seir
from flwr_fbo.tasks.papers.data.sources import SOURCES, Source
from flwr_fbo.tasks.papers.data.store import cache_directory, find, require
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
    "digits_by_writer",
    "emnist",
    "find",
    "gleam",
    "har",
    "landmine",
    "light_problem",
    "light_sensors",
    "mnist",
    "require",
    "seir",
    "stock_problem",
    "stocks",
]
