"""Builds a TensorRT engine from the plugin graph: a plan with the plugin inside.

Not run on a GPU yet: the tests check its names and arguments against the real TensorRT 11 and run it on a stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.gpu import plugin_files
from vcdeploy.gpu.tensorrt import collecting_logger, create, import_tensorrt
from vcdeploy.spec import UNITS

Range = tuple[int, int, int]  # minimum, the size to optimize for, maximum
STEPS: Range = (1, 64, 512)
BATCH: Range = (1, 1, 16)


@dataclass(frozen=True)
class Built:
    """The result of a build. plan: the engine. timing: the timing cache, for the next build."""

    plan: bytes
    timing: bytes
    tensorrt: str


def read_range(text: str, option: str) -> Range:
    """Parse MIN:OPT:MAX."""
    try:
        least, best, most = (int(part) for part in text.split(":"))
    except ValueError:
        least, best, most = 0, 0, 0
    if not 1 <= least <= best <= most:
        raise BadValue(
            f"{option} {text!r} is not a range: give MIN:OPT:MAX with 1 <= MIN <= OPT <= MAX, such as 1:64:512"
        )
    return least, best, most


def build_engine(
    graph: bytes, config: dict[str, Any], steps: Range, batch: Range, plugin: Path | None, timing: bytes = b""
) -> Built:
    """Build the engine of a plugin graph.

    graph: the serialized plugin graph. config: the model's configuration. plugin: the library of the ops.
    timing: the timing cache of an earlier build, or empty.
    """
    trt = import_tensorrt()
    logger = collecting_logger(trt)
    builder = create(trt.Builder, logger, trt.__version__)
    variable = UNITS[config["unit"]].variable
    if variable:
        _load_plugin(builder, config["unit"].upper(), plugin, logger)
    flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flag)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(graph):
        faults = [parser.get_error(number).desc() for number in range(parser.num_errors)]
        raise VcdeployError(f"TensorRT {trt.__version__} can't read the model: {'; '.join(faults) or logger.said()}")
    _check_plugin_layers(trt, network, config["layers"] if variable else 0)

    settings = builder.create_builder_config()
    settings.clear_flag(trt.BuilderFlag.TF32)  # float32 products stay in float32
    if variable:
        settings.plugins_to_serialize = [str(plugin)]
    rows = config["layers"] * UNITS[config["unit"]].state_rows
    for T in ((1, 1, 1), steps):
        _add_profile(builder, settings, T, batch, rows, config["dim"])
    cache = settings.create_timing_cache(timing)
    if cache is None or not settings.set_timing_cache(cache, False):  # from another version or another GPU
        cache = settings.create_timing_cache(b"")
        settings.set_timing_cache(cache, False)
    plan = builder.build_serialized_network(network, settings)
    if plan is None:
        raise VcdeployError(f"TensorRT {trt.__version__} can't build the engine: {logger.said()}")
    return Built(bytes(plan), bytes(settings.get_timing_cache().serialize()), str(trt.__version__))


def _load_plugin(builder: Any, op: str, plugin: Path | None, logger: Any) -> None:
    if plugin is None:
        raise VcdeployError(f"the engine needs the TensorRT plugin, which is not built: {plugin_files.HOW_TO_BUILD}")
    registry = builder.get_plugin_registry()
    # If the library is already registered, loading it again fails, but the creator is available.
    registry.load_library(str(plugin))
    if registry.get_creator(op, "1", "") is None:
        raise VcdeployError(f"TensorRT can't load the plugin {plugin}: {logger.said()}; {plugin_files.HOW_TO_BUILD}")


def _check_plugin_layers(trt: Any, network: Any, wanted: int) -> None:
    """Check that every layer became a plugin layer; otherwise TensorRT would silently run something else."""
    layers = (network.get_layer(number) for number in range(network.num_layers))
    found = sum(layer.type == trt.LayerType.PLUGIN_V3 for layer in layers)
    if found != wanted:
        raise VcdeployError(
            f"TensorRT {trt.__version__} created {found} plugin layers for the model's {wanted}: it would compute "
            "densely. Nothing was built; please report it as a bug in vcdeploy"
        )


def _add_profile(builder: Any, settings: Any, steps: Sequence[int], batch: Sequence[int], rows: int, dim: int) -> None:
    profile = builder.create_optimization_profile()
    profile.set_shape("tokens", *zip(steps, batch, strict=True))
    profile.set_shape("state", *((rows, B, dim) for B in batch))
    if settings.add_optimization_profile(profile) < 0:
        raise VcdeployError(f"TensorRT rejects the profile of {list(steps)} steps and {list(batch)} sequences")
