// The hook layout: a square matrix packed so that any upper-left prefix of it is a prefix of memory.
//
// A step with `a` active dimensions multiplies the a × a corner of every matrix, and at batch 1 its time is that of
// reading those weights. The ladder that led here (VCGRU, D = 1024, m = 0.4, one thread, microseconds a step on an
// AVX2 machine; the first column is the idea, each kept by the next):
//
//     row-major, stride D      105   every row starts on a new page; the corner is a/D of each
//     panels of 16 rows         65   a column of 16 rows is one or two registers: no horizontal sums
//     hook                      61   the corner is one contiguous run, whatever a is
//     table of the input side   40   x is one of few embeddings: V x is looked up, half the weights stay unread
//     f16 weights, with table   26   half the bytes, sums still in f32
//     int8 weights, with table  16   a quarter of them, sums in int32
//
// The matrix is cut into shells of 32. Shell k adds to a 32k × 32k corner what makes it 32(k+1) × 32(k+1):
//
//     columns   0     32    64    96
//     rows   0  +-----+-----+-----+
//               |  0  | 1s  | 2s  |      shell 2 in memory:   2m  rows 64-95, columns 0-95, as two panels
//           32  +-----+-----+  .  |                           2s  columns 64-95 of the panels above, from the top
//               |  1m       | 2s  |
//           64  +-----------+-----+      shells follow each other: 0, 1m 1s, 2m 2s, 3m 3s, …
//               |  2m             |      shell k starts at k² · 32 · 32
//           96  +-----------------+
//
// A panel is 16 rows. Within one, columns follow each other, and a column holds 16 rows of every gate that reads the
// same input: [column][gate][16]. In bf16 the 16 rows lie in the order 0, 8, 1, 9, …, so that one shift and one mask
// of a register widen them all. In int8 two columns go together, [column pair][gate][8][2][2], for the multiply
// instruction that sums pairs; rows r and r + 8 lie side by side, and r has 128 added, so that again one mask and one
// shift widen them all. What was added, 128 Σ x, is the same in every row, and sums begin without it. Rows and columns
// past D are zeros, or in int8 meet a scale or a level of 0.
#pragma once

#include <cstddef>

namespace vcdeploy {

constexpr int kPanel = 16;  // rows of a panel
constexpr int kShell = 32;  // rows and columns that a shell adds
constexpr int kPanelsOfShell = kShell / kPanel;

// `static`, here and in whatever else the files compiled for one instruction set include: were these functions
// shared, the linker might keep the copy that only a newer processor can run.

static inline int rounded_up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

// How many panels hold `rows` rows.
static inline int panels_of(int rows) { return (rows + kPanel - 1) / kPanel; }

// Weights before shell k.
static inline std::size_t shell_start(int k, int gates) {
    return static_cast<std::size_t>(k) * k * kShell * kShell * gates;
}

// Where a panel's weights of shell k start: `panel` is either one of the shell's own (its columns are 0 to
// 32(k+1) - 1) or one above it (its columns are the shell's 32).
static inline std::size_t panel_start(int k, int panel, int gates) {
    const int above = k * kPanelsOfShell;
    const std::size_t long_panel = static_cast<std::size_t>(k + 1) * kShell * kPanel * gates;
    const std::size_t start = shell_start(k, gates);
    if (panel >= above) return start + (panel - above) * long_panel;
    return start + kPanelsOfShell * long_panel + static_cast<std::size_t>(panel) * kShell * kPanel * gates;
}

}  // namespace vcdeploy
