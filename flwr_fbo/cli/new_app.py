"""The command ``flwr-fbo new NAME``, which writes a Flower app with a task of the user's own."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

from flwr_fbo.core.settings import SettingsError

_PROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "Hyperparameters tuned by several parties together, with flwr-fbo"
license = "Apache-2.0"
# `flwr run` installs these packages into a new environment. flwr-fbo and its dependencies come from
# the environment that runs Flower. Add the other packages that your task imports.
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["$module"]

[tool.flwr.app]
publisher = "$module"

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

To try the task in one process, without Flower's simulation engine:

    flwr-fbo run $module.task:tuned --agents 10 --epsilon 5 --engine inline

To run it as a Flower app, in a simulation or in a deployment:

    flwr run . --stream

Flower simulates two parties by default. For ten parties, add
`--federation-config "num-supernodes=10 client-resources-num-cpus=1"`.
""")


def new_app(name: str, folder: Path) -> Path:
    """Write a Flower app into a new folder of the same name, and return the folder."""
    module = name.replace("-", "_").lower()
    if not module.isidentifier() or keyword.iskeyword(module) or not module.isascii():
        raise SettingsError(
            "`NAME` must consist of letters, digits, - and _, begin with a letter, and be no "
            f"keyword of Python, but got {name!r}"
        )
    root = folder / name
    if root.exists():
        raise SettingsError(f"`NAME` must be the name of a new directory, but {root} exists")
    names = {"name": name, "module": module}
    files = {
        "pyproject.toml": _PROJECT.substitute(names),
        "README.md": _README.substitute(names),
        ".gitignore": "__pycache__/\nflwr-fbo-runs/\n*.fab\n",
        f"{module}/__init__.py": f'"""{name}."""\n',
        f"{module}/task.py": _TASK,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root
