"""plugins/tensorrt/launch.cu and the plugin on the emulated GPU: plan, launch with CUDA's checks, kernel.

Threads, members and memory are as on a real GPU; plugins/emulator/cuda_runtime.cpp stands in for CUDA (not run on a
GPU).
"""

from typing import Any

import pytest
import torch
from cases import EPSILON, GATES, Case
from numpy.typing import NDArray
from plugins.emulated import WANTED, Gpu, Launch, emulate, enqueue, launch

GPU = Gpu(9, 227 << 10, clusters=1)
WITHOUT_CLUSTERS = Gpu(5, 99 << 10)


def arrays(case: Case) -> list[NDArray[Any]]:
    return [each.numpy() for each in case.inputs(torch.float32)]


def same_bits(some: list[NDArray[Any]], others: list[NDArray[Any]]) -> bool:
    return all(one.tobytes() == other.tobytes() for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("types", ["f32", "half-weights", "half"])
@pytest.mark.parametrize("unit", GATES)
def test_every_path_is_launched_right(unit: str, types: str) -> None:
    """The same bits as the kernel alone, for a batch and for one sequence, where one block may continue alone."""
    for B in (3, 1):
        case = Case(unit, 4, B, 40, "ragged", 1.0)
        wanted, _ = emulate(case, arrays(case), Launch("block", types, threads=512), EPSILON)
        for path in WANTED:
            GPU.take()
            got, plan = launch(case, arrays(case), types, EPSILON, path, seed=B)
            assert same_bits(got, wanted), (path, B)
            assert path == "automatic" or path.startswith(plan.path)
            assert plan.on_chip == (path != "grid-off-chip")
            assert plan.path != "grid" or (plan.alone > 0) == (B == 1 and path != "grid-together")


def test_more_sequences_than_multiprocessors() -> None:
    case = Case("vcgru", 3, 7, 33, "ragged", 0.5)
    wanted, _ = emulate(case, arrays(case), Launch("block", threads=512), EPSILON)
    WITHOUT_CLUSTERS.take()
    for path in ("automatic", "block", "grid", "grid-off-chip"):
        assert same_bits(launch(case, arrays(case), "f32", EPSILON, path)[0], wanted), path


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize(("T", "B"), [(0, 2), (3, 0), (0, 0)])
def test_without_steps_or_sequences_the_states_are_copied(unit: str, T: int, B: int) -> None:
    case = Case(unit, T, B, 7, "ragged", 1.0)
    GPU.take()
    inputs = arrays(case)
    (_, H, _, *C), _ = launch(case, inputs, "f32", EPSILON)
    assert same_bits([H, *C], [inputs[1], *inputs[7:]])


@pytest.mark.parametrize("path", ["block", "cluster", "grid"])
def test_a_small_state_takes_no_shared_memory_from_a_large_one(path: str) -> None:
    """The limit is per kernel: more than 48 KB must stay allowed if the next layer needs less."""
    case = Case("vcgru", 1, 1, 1760, "zero", 1.0)
    GPU.take()
    _, plan = launch(case, arrays(case), "half-weights", EPSILON, path, between=7)
    assert plan.shared_bytes > 48 << 10


def test_weights_must_be_aligned() -> None:
    """They are loaded 16 bytes at a time."""
    case = Case("vcgru", 3, 2, 64, "ragged", 1.0)
    GPU.take()
    with pytest.raises(ValueError, match="U and V must start at a multiple of 16 bytes"):
        launch(case, arrays(case), "f32", EPSILON, shift=4)


MIDDLING = Case("vcgru", 1, 1, 384, "zero", 1.0)  # runs on a cluster if available


def test_clusters_are_taken_where_the_gpu_and_the_kernels_have_them() -> None:
    Gpu(132, 227 << 10, clusters=16).take()
    assert launch(MIDDLING, arrays(MIDDLING), "f32", EPSILON)[1].path == "cluster"


@pytest.mark.parametrize(
    "gpu",
    [
        Gpu(132, 227 << 10, clusters=16, compiled_for=80),  # JIT-compiled from PTX for an older GPU
        Gpu(132, 227 << 10, clusters=16, most_of_a_cluster=4),  # a GPU partition
        Gpu(132, 227 << 10),
    ],
)
def test_no_cluster_is_launched_where_none_can_run(gpu: Gpu) -> None:
    """Compiled for a GPU without clusters, the kernel would fail at once or (empty) not write its outputs."""
    gpu.take()
    wanted, _ = launch(MIDDLING, arrays(MIDDLING), "f32", EPSILON, "block")
    got, plan = launch(MIDDLING, arrays(MIDDLING), "f32", EPSILON)
    assert plan.path != "cluster" and same_bits(got, wanted)
    with pytest.raises(ValueError, match="the path cluster needs compute capability 9 or later, a plugin compiled for"):
        launch(MIDDLING, arrays(MIDDLING), "f32", EPSILON, "cluster")


def test_a_plugin_for_other_gpus_says_so() -> None:
    Gpu(16, 99 << 10, compiled_for=0).take()
    with pytest.raises(ValueError, match=r"cudaErrorNoKernelImageForDevice.*run `vcdeploy plugin build`"):
        launch(MIDDLING, arrays(MIDDLING), "f32", EPSILON)


@pytest.mark.parametrize("path", ["auto", "block", "cluster", "grid", "grid-off-chip", "grid-together"])
@pytest.mark.parametrize("types", ["f32", "half-weights", "half"])
@pytest.mark.parametrize("unit", GATES)
def test_the_plugin_computes_from_its_creator_to_enqueue(
    unit: str, types: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Build, serialize, re-create and attach the plugin, with exactly the workspace it asks for."""
    monkeypatch.setenv("VCDEPLOY_TENSORRT_PATH", path)
    GPU.take()
    for T, B in ((3, 2), (1, 1)):
        case = Case(unit, T, B, 24, "ragged", 0.5)
        wanted, _ = emulate(case, arrays(case), Launch("block", types, threads=512), EPSILON)
        got, tactics, kernel = enqueue(case, arrays(case), types, EPSILON, (3, 2))
        assert same_bits(got, wanted) and tactics == (4 if path == "auto" else 0)
        assert path == "auto" or path.startswith(kernel) or T == 1  # alone, or without steps between which to wait


@pytest.mark.parametrize(
    ("gpu", "paths"),
    [
        (GPU, ["block", "cluster", "grid", "grid"]),
        (WITHOUT_CLUSTERS, ["block", "grid", "grid"]),
        (Gpu(5, 99 << 10, cooperative=False), ["block"]),
    ],
)
def test_every_tactic_runs_its_kernel(gpu: Gpu, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tactics are the paths that the GPU can run."""
    monkeypatch.delenv("VCDEPLOY_TENSORRT_PATH", raising=False)
    gpu.take()
    case = Case("vcgru", 3, 2, 24, "ragged", 0.5)
    wanted, _ = emulate(case, arrays(case), Launch("block", threads=512), EPSILON)
    for tactic in range(-1, len(paths)):
        got, tactics, kernel = enqueue(case, arrays(case), "f32", EPSILON, (3, 2), tactic=tactic)
        assert same_bits(got, wanted) and tactics == len(paths)
        assert tactic < 0 or kernel == paths[tactic]


def test_without_resident_blocks_the_grid_is_not_launched() -> None:
    Gpu(132, 227 << 10, resident=0).take()
    large = Case("vcgru", 1, 1, 512, "zero", 1.0)
    assert launch(large, arrays(large), "f32", EPSILON)[1].path == "block"
    with pytest.raises(ValueError, match="the path grid needs cooperative launches, which can't run on this GPU"):
        launch(large, arrays(large), "f32", EPSILON, "grid")


def test_the_plugin_says_what_the_gpu_lacks(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VCDEPLOY_TENSORRT_PATH", "cluster")
    WITHOUT_CLUSTERS.take()
    case = Case("vcgru", 1, 1, 24, "ragged", 0.5)
    with pytest.raises(ValueError, match="onShapeChange failed"):
        enqueue(case, arrays(case), "f32", EPSILON, (1, 1))
    assert "vcdeploy: VCGRU: the path cluster needs compute capability 9" in capfd.readouterr().err
