"""Resuming from crafted checkpoints: their checksum fits, but no run has written them."""

import pytest
from attack import files

from vcdeploy.errors import VcdeployError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> files.Run:
    return files.Run(tmp_path_factory.mktemp("resume"))


def test_no_crafted_state_is_resumed(run: files.Run) -> None:
    """A fifth of them; `python tests/attack/files.py` tries all."""
    tries, failures = files.crafted_states(run, every=5)
    assert failures == []
    assert tries > 100


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("step = -5", "its step is -5, not 0 to"),
        ("best = 'x'", "its best evaluation is 'x', not three numbers"),
        ("config.dim = 1000000000", "--dim must be from 1 to 16384, not 1000000000"),
        ("unit = 'x' in description and settings", "it has the unit 'x'"),
        ("dim = 9 in description and settings", "its weights are not of 1 layers of 9 dimensions"),
        ("layers = 64 in description and settings", "its weights are not of 64 layers of 8 dimensions"),
        ("training.new unknown", "it has an unknown new"),
        ("objective.steering.lifts = -5", "lifts of its budget is -5"),
        ("training.rng all ones", "rng is not a random state"),
        ("training.adam.output.bias.exp_avg_sq negative", "exp_avg_sq is negative"),
        ("other symbols", "its vocabulary is not that of the corpus"),
    ],
)
def test_the_error_names_what_is_wrong(name: str, said: str, run: files.Run) -> None:
    with pytest.raises(VcdeployError, match=said):
        run.resume(files.crafted(run.saved)[name])


def test_a_finished_run_can_be_resumed(run: files.Run) -> None:
    run.resume()
