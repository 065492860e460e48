// A vector register of VCDEPLOY_VECTOR_BYTES of floats or doubles; the compiler chooses the instructions.
//
// Included by training/kernels.cpp after simd/simd.h.
#pragma once

#include <cstddef>
#include <cstring>

namespace vcdeploy::training::VCDEPLOY_ISA {

template <class T>
constexpr int kLanes = VCDEPLOY_VECTOR_BYTES / static_cast<int>(sizeof(T));

#ifdef __GNUC__
typedef float Floats __attribute__((vector_size(VCDEPLOY_VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VCDEPLOY_VECTOR_BYTES)));
template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
    using type = Floats;
};
template <>
struct VectorOf<double> {
    using type = Doubles;
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
static inline Vector<T> all(T x) {
    return x - Vector<T>{};  // not +: -0 stays -0
}
#else
// The same, for compilers without vector types.
template <class T>
struct Vector {
    T x[kLanes<T>];
    friend Vector operator+(Vector a, Vector b) {
        for (int i = 0; i < kLanes<T>; ++i) a.x[i] += b.x[i];
        return a;
    }
    friend Vector operator*(Vector a, Vector b) {
        for (int i = 0; i < kLanes<T>; ++i) a.x[i] *= b.x[i];
        return a;
    }
};

template <class T>
static inline Vector<T> all(T x) {
    Vector<T> v;
    for (T& each : v.x) each = x;
    return v;
}
#endif

template <class T>
static inline Vector<T> load(const T* p) {
    Vector<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
static inline void store(T* p, Vector<T> v) {
    std::memcpy(p, &v, sizeof v);
}

// Prefetches to L1 for writing, to L2 for reading.
static inline void prefetch_to_write([[maybe_unused]] const void* p) {
#ifdef __GNUC__
    __builtin_prefetch(p, 1);
#endif
}
static inline void prefetch_to_read([[maybe_unused]] const void* p) {
#ifdef __GNUC__
    __builtin_prefetch(p, 0, 2);
#endif
}

}  // namespace vcdeploy::training::VCDEPLOY_ISA
