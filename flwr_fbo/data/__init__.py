"""Data sets in the layouts their authors publish."""

from flwr_fbo.data.errors import DataError
from flwr_fbo.data.landmine import landmine
from flwr_fbo.data.sources import SOURCES, Source
from flwr_fbo.data.store import cache_directory, find, require
from flwr_fbo.data.tables import Parties

__all__ = [
    "SOURCES",
    "DataError",
    "Parties",
    "Source",
    "cache_directory",
    "find",
    "landmine",
    "require",
]
