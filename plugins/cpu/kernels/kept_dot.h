// u·h and v·x, computing only what a step changed.
//
// Included by kernels.cpp after simd/dot.h.
#pragma once

#include "kernels/table.h"

namespace vcdeploy::VCDEPLOY_ISA {

static double dot_from_the_end(const float* a, const float* b, int n, int changed, double* kept) {
    int block = kept_blocks(changed);
    double sum[16] = {};
    if (kept)
        for (int lane = 0; lane < 16; ++lane) sum[lane] = kept[block * 16 + lane];
    while (block-- > 0) {
        const int begin = block * kKeptBlock;
        add_all_products(a + begin, b + begin, n - begin < kKeptBlock ? n - begin : kKeptBlock, sum);
        if (kept)
            for (int lane = 0; lane < 16; ++lane) kept[block * 16 + lane] = sum[lane];
    }
    return added_up<16>(sum);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
