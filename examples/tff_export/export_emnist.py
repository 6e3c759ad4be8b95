# /// script
# requires-python = "==3.11.*"
# dependencies = ["tensorflow-federated==0.87.0", "numpy"]
#
# [tool.uv]
# override-dependencies = ["jax==0.4.13", "jaxlib==0.4.13"]
# ///
"""Export writers of TensorFlow Federated's EMNIST to the npz that the task `emnist` reads.

TensorFlow Federated cannot be installed beside a current Flower, so this script runs in an
environment of its own, which uv makes from the lines above:

    uv run export_emnist.py --output emnist_export.npz

With ``--cache-dir DIR`` an ``emnist_all.sqlite`` in DIR is used instead of a download.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    arguments = _arguments()
    load = _loader()
    splits = load(only_digits=True, cache_dir=arguments.cache_dir)
    clients = sorted(splits[0].client_ids)[: arguments.writers]
    if len(clients) < arguments.writers:
        sys.exit(f"{arguments.writers} writers were asked for, but there are {len(clients)}")
    np.savez_compressed(arguments.output, allow_pickle=False, **export(splits, clients))
    print(f"{arguments.output}: {len(clients)} writers")


def export(splits: tuple[Any, Any], clients: list[str]) -> dict[str, np.ndarray]:
    """The images of these clients in both splits, as arrays."""
    pixels, labels, numbers, tests = [], [], [], []
    for number, client in enumerate(clients):
        for split, is_test in zip(splits, (False, True), strict=True):
            if client not in split.client_ids:
                continue
            for example in split.create_tf_dataset_for_client(client):
                pixels.append(example["pixels"].numpy())
                labels.append(int(example["label"].numpy()))
                numbers.append(number)
                tests.append(is_test)
    return {
        "pixels": np.stack(pixels).astype(np.float32),
        "label": np.array(labels, dtype=np.int64),
        "client": np.array(numbers, dtype=np.int64),
        "test": np.array(tests, dtype=bool),
        "client_ids": np.array(clients),
    }


def _loader() -> Any:
    import tensorflow_federated as tff

    return tff.simulation.datasets.emnist.load_data


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("emnist_export.npz"))
    parser.add_argument("--cache-dir", help="directory with emnist_all.sqlite, or to download to")
    parser.add_argument("--writers", type=int, default=50, help="how many, in order of client id")
    return parser.parse_args()


if __name__ == "__main__":
    main()
