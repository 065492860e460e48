// The functions of plugins/tensorrt/device.cuh on the emulator, for float and double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"

#define VCDEPLOY_KERNEL
#define VCDEPLOY_DEVICE inline
#define VCDEPLOY_THREADS
#define VCDEPLOY_CLUSTERS 1

namespace vcdeploy {

using Half = _Float16;

using emulator::block;
using emulator::blocks;
using emulator::cluster_rank;
using emulator::shared_memory;
using emulator::thread;
using emulator::threads;

template <Barrier name>
void block_barrier() {
    emulator::barrier(emulator::Scope::block, int(name));
}
template <Barrier name>
void cluster_barrier() {
    emulator::barrier(emulator::Scope::cluster, int(name));
}
template <Barrier name>
void grid_barrier() {
    emulator::barrier(emulator::Scope::grid, int(name));
}

template <class T>
T* in_block_of_cluster(T* mine, int rank) {
    return static_cast<T*>(emulator::in_block_of_cluster(mine, rank));
}

template <class T>
T shuffle_xor(T value, int lanes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = emulator::shuffle_xor(bits, lanes);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

using emulator::did;
using emulator::Work;

template <class Pack>
Pack load(const Pack* from) {
    for (std::size_t bytes = 0; bytes < sizeof(Pack); bytes += 16) did(Work::load);  // a lane loads 16 bytes at most
    return *from;
}
template <class T>
void store(T* to, T value) {
    did(Work::store);
    *to = value;
}

template <class Pack>
Pack read_constant(const Pack* from) {
    did(Work::global_load);
    emulator::touch(from, sizeof(Pack));
    return *from;
}
template <class T>
void write_shared_by_grid(T* to, T value) {
    did(Work::global_store);
    emulator::touch(to, sizeof(T));
    *to = value;
}
template <class T>
T read_shared_by_grid(const T* from) {
    did(Work::global_load);
    emulator::touch(from, sizeof(T));
    return *from;
}

template <class Real>
Real sum(Real a, Real b) {
    did(Work::sum);
    return a + b;
}
template <class Real>
Real product(Real a, Real b) {
    did(Work::sum);
    return a * b;
}
template <class Real>
Real multiply_add(Real a, Real b, Real c) {
    did(Work::multiply_add);
    return std::fma(a, b, c);
}

template <class Real>
Real exponential(Real x) {
    did(Work::function);
    return std::exp(x);
}
template <class Real>
Real hyperbolic_tangent(Real x) {
    did(Work::function);
    return std::tanh(x);
}
template <class Real>
bool is_finite(Real x) {
    return std::isfinite(x);
}

template <class Real, class Number>
Real widened(Number value) {
    return static_cast<Real>(value);
}
template <class Real, class Number>
void narrow(Real value, Number* to) {
    did(Work::global_store);
    emulator::touch(to, sizeof(Number));
    *to = static_cast<Number>(value);
}

}  // namespace vcdeploy
