// The hook layout: a square matrix packed so that any upper-left prefix of it is a prefix of memory.
//
// A step with `a` active dimensions multiplies the a × a corner of every matrix, and at batch 1 its time is that of
// reading those weights. In this layout the corner is one contiguous run for any a. docs/kernel-notes.md compares the
// versions that led here.
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
// A panel is 16 rows, stored column by column; a column holds 16 rows of every gate that reads the same input:
// [column][gate][16]. In bf16 the rows are in the order 0, 8, 1, 9, …, so that one shift and one mask of a register
// widen all of them. In int8 two columns are interleaved, [column pair][gate][8][2][2], for the multiply instruction
// that sums pairs. Rows r and r + 8 are adjacent and r has 128 added, so that again one mask and one shift widen all of
// them. The added 128 Σ x is the same in every row and is subtracted from the initial sums. In w8a8 four columns are
// interleaved, [four columns][gate][16][4], for the instruction that sums four products of unsigned and signed bytes;
// every row has 128 added. Rows and columns past D are zero or, if quantized, have a scale or a level of 0.
#pragma once

#include <cstddef>

namespace vcdeploy {

constexpr int kPanel = 16;  // rows per panel
constexpr int kShell = 32;  // rows and columns a shell adds
constexpr int kPanelsOfShell = kShell / kPanel;
constexpr int kColumnGroup = 4;  // columns of quantized weights that are read at once, at most

// `static`, as everything included by the files compiled per instruction set: if these functions were shared, the
// linker might keep a copy that only a newer processor can run.

static inline int rounded_up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

// The number of panels that hold `rows` rows.
static inline int panels_of(int rows) { return (rows + kPanel - 1) / kPanel; }

// Offset of shell k, in weights.
static inline std::size_t shell_start(int k, int gates) {
    return static_cast<std::size_t>(k) * k * kShell * kShell * gates;
}

// Offset of a panel's weights in shell k: `panel` is either one of the shell's own (columns 0 to 32(k+1) - 1) or one
// above it (the shell's 32 columns).
static inline std::size_t panel_start(int k, int panel, int gates) {
    const int above = k * kPanelsOfShell;
    const std::size_t long_panel = static_cast<std::size_t>(k + 1) * kShell * kPanel * gates;
    const std::size_t start = shell_start(k, gates);
    if (panel >= above) return start + (panel - above) * long_panel;
    return start + kPanelsOfShell * long_panel + static_cast<std::size_t>(panel) * kShell * kPanel * gates;
}

}  // namespace vcdeploy
