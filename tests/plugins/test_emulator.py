"""The emulator detects faults in kernels that are wrong on purpose (plugins/emulator/faults.cpp)."""

import ctypes

import pytest
from plugins.emulated import library

FAULTS = {
    "divergent barrier": "waits at a barrier that not all threads reach",
    "missed barrier": "waits at a barrier that not all threads reach",
    "partial shuffle": "waits at a shuffle that not all lanes of its warp reach",
    "divergent shuffle": "waits at a shuffle that not all lanes of its warp reach",
    "past shared memory": "wrote past its shared memory",
    "foreign memory": "global memory that is not the kernel's",
    "ended block": "touches the shared memory of block 1, which has",
    "grid barrier": "waits at a barrier that not all threads reach",
}


def fault(name: str, seed: int) -> tuple[int, str]:
    message = ctypes.create_string_buffer(300)
    return library().vcdeploy_fault(name.encode(), ctypes.c_ulonglong(seed), message, 300), message.value.decode()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(name: str) -> None:
    for seed in range(6):
        noticed, message = fault(name, seed)
        assert noticed == 1 and FAULTS[name] in message


def test_a_right_kernel_runs() -> None:
    assert all(fault("nothing wrong", seed) == (0, "") for seed in range(6))
