"""Where every data set comes from, under which licence, and what its files are called.

A checksum is listed here only where one is known for certain. A download without a checksum is
checked by the archive's own checksums and by the loader, which rejects data of another shape.
"""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 2**20


class DataError(ValueError):
    """A data file is absent, damaged or of another kind; the message names the file and fault."""


@dataclass(frozen=True)
class Remote:
    """One file to download, from its authors or from a mirror."""

    url: str
    filename: str
    sha256: str | None = None
    max_bytes: int = 64 * MEGABYTE


@dataclass(frozen=True)
class Source:
    """A data set: its title, its licence, the names of its files, and where to download them."""

    name: str
    title: str
    licence: str
    homepage: str
    #: Names of files or directories that the loader reads, the originals first.
    accepted: tuple[str, ...]
    #: Files to download; empty where the authors ask people to download the files by hand.
    remotes: tuple[Remote, ...] = ()


DIGITS = Source(
    name="digits",
    title="Handwritten digits of scikit-learn (Alpaydin and Kaynak, 1998)",
    licence="CC BY 4.0 (UCI)",
    homepage="https://doi.org/10.24432/C50P49",
    accepted=(),
)

LANDMINE = Source(
    name="landmine",
    title="Landmine detection, 29 fields (Xue, Liao, Carin and Krishnapuram, 2007)",
    licence="none stated by its authors",
    homepage="http://www.ee.duke.edu/~lcarin/LandmineData.zip",
    accepted=("LandmineData.mat", "LandmineData.zip", "landmine.npz"),
    remotes=(
        Remote(
            "https://raw.githubusercontent.com/daizhongxiang/"
            "Federated_Bayesian_Optimization/"
            "9f46a1dfbbcfd5823e026ad9418a4cb881676ae9/LandmineData.mat",
            "LandmineData.mat",
            sha256="2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea",
        ),
    ),
)

HAR = Source(
    name="har",
    title="Human activity recognition with smartphones, 30 subjects (Anguita et al., 2013)",
    licence="CC BY 4.0 (UCI); the data set's own README prohibits commercial use",
    homepage="https://doi.org/10.24432/C54S4K",
    accepted=(
        "human+activity+recognition+using+smartphones.zip",
        "UCI HAR Dataset.zip",
        "UCI HAR Dataset",
        "har_561.npz",
    ),
    remotes=(
        Remote(
            "https://archive.ics.uci.edu/static/public/240/"
            "human+activity+recognition+using+smartphones.zip",
            "human+activity+recognition+using+smartphones.zip",
            max_bytes=256 * MEGABYTE,
        ),
    ),
)

GLEAM = Source(
    name="gleam",
    title="Glass Eating and Motion, 38 participants (Rahman, Merck, Huang and Kleinberg, 2015)",
    licence="none stated with the archive; its authors ask for a citation",
    homepage="http://www.skleinberg.org/data/GLEAM.tar.gz",
    accepted=("GLEAM.tar.gz", "GLEAM"),
    remotes=(
        Remote(
            "http://www.skleinberg.org/data/GLEAM.tar.gz",
            "GLEAM.tar.gz",
            max_bytes=2048 * MEGABYTE,
        ),
    ),
)

EMNIST = Source(
    name="emnist",
    title="EMNIST digits by writer, as TensorFlow Federated ships them (Cohen et al., 2017)",
    licence="CC0, according to DP-FTS-DE App. B.2.1; the archive states none",
    homepage="https://www.tensorflow.org/federated",
    accepted=(
        "emnist_export.npz",
        "emnist_all.sqlite",
        "emnist_all.sqlite.lzma",
        "fed_emnist_digitsonly.tar.bz2",
    ),
    remotes=(
        Remote(
            "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma",
            "emnist_all.sqlite.lzma",
            sha256="c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48",
            max_bytes=256 * MEGABYTE,
        ),
    ),
)

WRITERS = Source(
    name="writers",
    title="MNIST training digits of the first 50 writers of NIST SD19 hsf_0 (QMNIST's writer ids)",
    licence="QMNIST: BSD-style; MNIST: none stated",
    homepage="https://github.com/facebookresearch/qmnist",
    accepted=("digits_by_writer_first50.npz",),
)

#: Names and checksums of the idx files.
_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}

MNIST = Source(
    name="mnist",
    title="MNIST handwritten digits (LeCun, Cortes and Burges)",
    licence="none stated by its authors; often given as CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    accepted=(
        "train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte",
        "train-images.idx3-ubyte",
        "MNIST/raw/train-images-idx3-ubyte.gz",
        "MNIST/raw/train-images-idx3-ubyte",
        "mnist.npz",
        "mnist_with_writers.npz",
    ),
    remotes=tuple(
        Remote(f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}", name, sha256)
        for name, sha256 in _MNIST_FILES.items()
    ),
)

#: A repository of code for heavy-tailed rewards that ships both tables of LDP-BO.
_HEAVY_TAILS = (
    "https://raw.githubusercontent.com/sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs/"
    "30196d5c9eca766ca87afec517be98cf76c961a5/"
)

LIGHT = Source(
    name="light",
    title="Light sensors of the CMU Intelligent Workplace, November 2005 (A. Krause)",
    licence="none stated by its author",
    homepage="https://github.com/sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs",
    accepted=("iw_data_all.mat", "light_sensors.npz"),
    remotes=(
        Remote(
            _HEAVY_TAILS + "iw_data_all.mat",
            "iw_data_all.mat",
            sha256="3d87e03ae8bc9e3f0a4abeb57c64933c7d3dee7476ac5c4f6ca28b4efc357c15",
        ),
    ),
)

STOCKS = Source(
    name="stocks",
    title="Adjusted closing prices of 29 stocks, 2016-01-04 to 2019-04-10",
    licence="none stated",
    homepage="https://github.com/sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs",
    accepted=("fin.csv", "stocks.npz"),
    remotes=(
        Remote(
            _HEAVY_TAILS + "fin.csv",
            "fin.csv",
            sha256="e9f7d7c3a0ad4ada75e5b8fa3830c77ed0579232b45837438c671d83b1818199",
        ),
    ),
)

SEIR = Source(
    name="seir",
    title="SEIR parameters and populations of coronaSEIR (C. Culhane)",
    licence="MIT",
    homepage="https://github.com/cfculhane/coronaSEIR",
    accepted=("seir_params.json", "coronaSEIR/corona_model/data", "countryinfo"),
)

#: All data sets by name.
SOURCES: dict[str, Source] = {
    source.name: source
    for source in (DIGITS, LANDMINE, HAR, GLEAM, EMNIST, WRITERS, MNIST, LIGHT, STOCKS, SEIR)
}
