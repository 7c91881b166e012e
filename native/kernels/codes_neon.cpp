// Work on codes by NEON, which every 64-bit ARM CPU has.
#include "code_loops.hpp"

#if defined(__aarch64__)

#include <arm_neon.h>

namespace hamtarget {

namespace {

void neon_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        const std::uint8_t* code = rows.row(i);
        unsigned distance = 0;
        std::size_t at = 0;
        for (; at + 16 <= rows.n_bytes; at += 16)
            distance += vaddlvq_u8(vcntq_u8(veorq_u8(vld1q_u8(query + at), vld1q_u8(code + at))));
        result[i] = static_cast<Distance>(distance + code_distance(query + at, code + at, rows.n_bytes - at));
    }
}

}  // namespace

extern const CodeKernel kNeonCodes;
constinit const CodeKernel kNeonCodes = code_kernel_by_distances<neon_distances>("neon");

}  // namespace hamtarget

#endif
