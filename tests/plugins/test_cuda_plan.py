"""The choice of CUDA kernel and number of blocks (plugins/tensorrt/plan.h), for GPUs as in their data sheets."""

import pytest
from cases import GATES
from plugins.emulated import WANTED, Gpu, plan

T4 = Gpu(40, 64 << 10)
A100 = Gpu(108, 163 << 10)
L4 = Gpu(58, 99 << 10)
H100 = Gpu(132, 227 << 10, clusters=16)
GPUS = {"T4": T4, "A100": A100, "L4": L4, "H100": H100}


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_small_states_and_full_batches_take_a_block_a_sequence(gates: int, gpu: Gpu) -> None:
    assert plan(gates, 4, 1, 32, gpu).path == "block"
    for D in (64, 512):
        best = plan(gates, 2, 4 * gpu.multiprocessors, D, gpu)
        assert (best.path, best.blocks, best.members) == ("block", 4 * gpu.multiprocessors, 1)


def test_one_large_sequence_takes_the_gpu_and_a_middling_one_a_cluster_where_there_are_any() -> None:
    for gpu in GPUS.values():
        best = plan(3, 4, 1, 2048, gpu)
        assert (best.path, best.blocks) == ("grid", gpu.multiprocessors)
        assert best.members == best.blocks and 0 < best.alone < 2048
    assert [plan(3, 4, 1, D, H100).path for D in (104, 112, 576, 584)] == ["block", "cluster", "cluster", "grid"]
    for gpu in (A100, L4):
        assert [plan(3, 4, 1, D, gpu).path for D in (224, 232)] == ["block", "grid"]


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
@pytest.mark.parametrize("wanted", WANTED)
def test_every_plan_fits_the_gpu(gates: int, gpu: Gpu, wanted: str) -> None:
    refused = []
    for B in (1, 3, 40, 500):
        for D in (1, 7, 256, 1024, 4096, 20000, 65536):
            try:
                best = plan(gates, 2, B, D, gpu, wanted)
            except ValueError:
                refused.append(wanted)
                continue
            assert best.shared_bytes <= gpu.shared_bytes
            assert wanted == "automatic" or wanted.startswith(best.path)
            assert not (best.on_chip and wanted == "grid-off-chip")
            if best.path == "grid":  # all blocks are resident; one continues alone only for a single sequence
                assert 1 <= best.members <= best.blocks <= gpu.multiprocessors and best.blocks % best.members == 0
                assert best.alone <= (D if B == 1 else 0)
            else:
                assert best.blocks == B * best.members and best.alone == 0
            if not best.on_chip:  # the vectors of each block follow the exchanged data
                rooms = best.workspace_bytes - B * 4 * (4 * ((D + 7) // 8 * 8) + 8)
                assert rooms >= best.blocks * 4 * (7 if gates == 3 else 4) * D
    assert bool(refused) == (wanted in ("block", "cluster"))


def test_a_batch_takes_as_many_clusters_as_run_at_once() -> None:
    """CUDA reports how many: on a part of a GPU fewer than its multiprocessors would hold."""
    few = Gpu(132, 227 << 10, clusters=2)
    assert [plan(3, 4, B, 384, H100).path for B in (1, 16)] == ["cluster", "cluster"]
    assert [plan(3, 4, B, 384, few).path for B in (1, 16)] == ["cluster", "grid"]


def test_the_workspace_holds_vectors_only_if_they_are_off_chip() -> None:
    large = plan(3, 2, 1, 16384, L4, rooms=58)
    assert (large.path, large.on_chip, large.blocks) == ("grid", False, 58)
    assert large.workspace_bytes > 58 * 7 * 4 * 16384
    assert plan(3, 2, 1, 2048, L4, rooms=0).workspace_bytes < 2 * 4 * 4 * 2048
    with pytest.raises(ValueError, match=r"needs a workspace for its vectors on this GPU.*build it on this GPU"):
        plan(3, 2, 1, 16384, L4, rooms=0)


def test_what_can_not_run_is_said() -> None:
    with pytest.raises(ValueError, match="the path cluster needs compute capability 9 or later"):
        plan(3, 4, 1, 256, A100, "cluster")
    with pytest.raises(ValueError, match="the path block needs more shared memory"):
        plan(3, 4, 1, 8192, L4, "block")
    with pytest.raises(ValueError, match="the path grid needs cooperative launches"):
        plan(3, 4, 1, 256, Gpu(10, 99 << 10, cooperative=False), "grid")
    with pytest.raises(ValueError, match="no path runs on this GPU"):
        plan(3, 4, 1, 8192, Gpu(10, 99 << 10, cooperative=False))
