"""A small text to train on, and a trainer for it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vcdeploy.corpora import Corpus, load
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.distributed import Processes
from vcdeploy.training.loop import Trainer

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 12,000 characters of words drawn from a small lexicon."""
    draw = random.Random(0)
    words = ["prime", "minister", "of", "the", "a", "tune", "state", "step", "update,", "skip.", "3"]
    lines = [" ".join(draw.choices(words, k=8)) for _ in range(280)]
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def corpus(text_file: Path) -> Corpus:
    return load(str(text_file))


MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(corpus: Corpus, tmp_path: Path) -> MakeTrainer:
    """A factory: a Trainer with the given settings, in its own folder."""

    def make(folder: str = "run", **settings: Any) -> Trainer:
        small = {"corpus": "small", "dim": 16, "batch": 4, "bptt": 20, "epochs": 1.0, "warmup": 5}
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        return Trainer(TrainConfig(**{**small, **settings}), corpus, path, ALONE)

    return make
