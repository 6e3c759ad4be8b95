"""The command ``flwr-fbo new NAME``, which writes a Flower app with a task of the user's own.

The app has what Flower Hub asks for: the version of its format, the version of Flower that it was
written for, a licence file, a publisher, and a list of the files that belong to it.
"""

from __future__ import annotations

import keyword
import re
from importlib.metadata import version
from pathlib import Path
from string import Template

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.flower_versions import OLDEST

_PROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
description = "Hyperparameters tuned by several parties together, with flwr-fbo"
license = { file = "LICENSE" }
# Before each run, Flower installs these packages at every node, except flwr. Add the packages that
# your task imports, and `flwr-fbo` where the nodes do not have it already.
dependencies = ["flwr>=$oldest"]

# Without this line, Flower would download the packages that flwr needs for every run, although the
# node has them.
[tool.uv]
override-dependencies = ["flwr; python_version < '3'"]

[tool.hatch.build.targets.wheel]
packages = ["$module"]

[tool.flwr.app]
# To publish the app on Flower Hub, put the name of your account here: `flwr app publish .`
publisher = "$publisher"
fab-format-version = 1
flwr-version-target = "$target"
fab-include = ["$module/**/*.py", "README.md", "LICENSE"]

[tool.flwr.app.components]
serverapp = "flwr_fbo.strategies.server_app:app"
clientapp = "flwr_fbo.clients.client_app:app"

# `flwr run . --run-config "rounds=10"` changes these. `settings` takes the settings of strategy and
# task, which `flwr-fbo strategies dp-fts-de` lists. Empty means the default.
[tool.flwr.app.config]
task = "$module.task:tuned"
strategy = "dp-fts-de"
settings = "epsilon=5"
agents = ""
rounds = 20
seed = ""
run-name = ""
timeout = ""
track = ""
""")

_TASK = '''\
"""The task: replace the data, the model and the search space by your own."""

from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from flwr_fbo import Categorical, Float, Partition, task


def load(partition: Partition):
    """Return this party's own data.

    In a deployment, read the data from where the party keeps them. `partition.config` is the
    configuration of the node (`--node-config "data='...'"`).
    """
    return make_classification(200, 20, flip_y=0.1, random_state=partition.index)


@task(
    space={"C": Float(1e-4, 1e4, log=True), "class_weight": Categorical(["balanced", None])},
    metric="auc",
    prepare=load,
)
def tuned(params, data):
    """Return the score of these parameter values on this party's data, which is maximised."""
    model = LogisticRegression(**params, max_iter=500)
    return cross_val_score(model, *data, cv=3, scoring="roc_auc").mean()
'''

_README = Template("""\
# $name

Several parties tune the hyperparameters of `$module/task.py` together, under differential privacy.
Each party runs one node, and keeps its data and its scores.

## Nodes and data

Any number of nodes from two on. The more parties, the less the privacy costs: with 30 nodes and
epsilon 5 the parties help one another, and with two nodes the noise is larger than the signal.

The function `load` in `$module/task.py` returns the data of one party. It generates data at
first, so that the app runs at once. In a deployment, read your own data there. The configuration of
a node can say where they are:

    flower-supernode ... --node-config "partition-id=0 num-partitions=30 data='clinic.npz'"

## To run it

Install flwr-fbo at every node, with the packages that the task imports:

    pip install 'flwr-fbo[simulation]'

To try the task in one process, without Flower's simulation engine:

    flwr-fbo run $module.task:tuned --agents 10 --epsilon 5 --engine inline

To run it as a Flower app, in a simulation or in a deployment:

    flwr run . --stream

Flower simulates two parties by default. For ten parties, add
`--federation-config "num-supernodes=10 client-resources-num-cpus=1"`.

## What the nodes share

Each party sends one vector in a few of the rounds, and the server adds noise to their sum. The run
writes down what this guarantees: `flwr-fbo privacy --statement RUN`.
""")

#: The licence of the app; a user who chooses another one replaces the file.
_LICENCE = Path(__file__).with_name("app_licence.txt")
#: The form of the names that Flower accepts.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,31}")


def new_app(name: str, folder: Path, publisher: str = "") -> Path:
    """Write a Flower app into a new folder of the same name, and return the folder."""
    module = name.replace("-", "_").lower()
    if not _NAME.fullmatch(name) or name.endswith("-") or keyword.iskeyword(module):
        raise SettingsError(
            "`NAME` must consist of at most 32 letters, digits and -, begin with a letter, and be "
            f"no keyword of Python, but got {name!r}"
        )
    root = folder / name
    if root.exists():
        raise SettingsError(f"`NAME` must be the name of a new directory, but {root} exists")
    names = {
        "name": name,
        "module": module,
        "publisher": publisher or name,
        "oldest": OLDEST,
        "target": version("flwr"),
    }
    files = {
        "pyproject.toml": _PROJECT.substitute(names),
        "README.md": _README.substitute(names),
        "LICENSE": _LICENCE.read_text(encoding="utf-8"),
        ".gitignore": "__pycache__/\nflwr-fbo-runs/\n*.fab\n",
        f"{module}/__init__.py": f'"""{name}."""\n',
        f"{module}/task.py": _TASK,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root
