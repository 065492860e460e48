"""The experiments, one file each, most important first."""

from vcdeploy.bench.paper.experiment import Experiment
from vcdeploy.bench.paper.experiments.beyond import BEYOND
from vcdeploy.bench.paper.experiments.bits import BITS
from vcdeploy.bench.paper.experiments.characters import CHARACTERS
from vcdeploy.bench.paper.experiments.english import ENGLISH
from vcdeploy.bench.paper.experiments.europarl import EUROPARL
from vcdeploy.bench.paper.experiments.front import FRONT
from vcdeploy.bench.paper.experiments.music import MUSIC
from vcdeploy.bench.paper.experiments.pressure import PRESSURE
from vcdeploy.bench.paper.experiments.sharpness import SHARPNESS
from vcdeploy.bench.paper.experiments.text8 import TEXT8

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each for each in (CHARACTERS, BITS, MUSIC, TEXT8, EUROPARL, ENGLISH, BEYOND, FRONT, SHARPNESS, PRESSURE)
}
