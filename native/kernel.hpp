// Hamming distances by the widest instructions of the CPU at hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "code.hpp"
#include "code_avx2.hpp"
#include "code_avx512.hpp"

namespace hamtarget {

// One way to compute distances. All of them give the same results.
struct Kernel {
    const char* name;
    bool is_avx512;

    // Distance of `query` to each row.
    void (*distances)(const std::uint8_t* query, Codes rows, Distance* result);

    // Number of rows within `radius`, whose positions and distances are written in the order of the rows.
    // Takes at most kBlockRows rows; both results have room for all of them and kKernelSlack more.
    std::size_t (*within)(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                          Distance* distances);
};

namespace kernels {

#if defined(__aarch64__)

inline void neon_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        const std::uint8_t* code = rows.row(i);
        unsigned distance = 0;
        std::size_t at = 0;
        for (; at + 16 <= rows.n_bytes; at += 16)
            distance += vaddlvq_u8(vcntq_u8(veorq_u8(vld1q_u8(query + at), vld1q_u8(code + at))));
        result[i] = static_cast<Distance>(distance + code_distance(query + at, code + at, rows.n_bytes - at));
    }
}

#endif

}  // namespace kernels

// The kernels that this CPU can run, fastest first; the last one runs everywhere.
inline std::span<const Kernel> supported_kernels() {
    static const std::vector<Kernel> supported = [] {
        using namespace kernels;
        std::vector<Kernel> found;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512vpopcntdq"))
            found.push_back({"avx512", true, avx512_distances, avx512_within});
        if (__builtin_cpu_supports("avx2"))
            found.push_back({"avx2", false, avx2_distances, within_by_distances<avx2_distances>});
        if (__builtin_cpu_supports("popcnt"))
            found.push_back({"popcnt", false, popcnt_distances, within_by_distances<popcnt_distances>});
#elif defined(__aarch64__)
        found.push_back({"neon", false, neon_distances, within_by_distances<neon_distances>});
#endif
        found.push_back({"portable", false, portable_distances, within_by_distances<portable_distances>});
        return found;
    }();
    return supported;
}

inline const Kernel& best_kernel() { return supported_kernels().front(); }

// The kernel of that name. Throws std::invalid_argument where this CPU has none.
inline const Kernel& kernel_named(std::string_view name) {
    for (const Kernel& kernel : supported_kernels())
        if (kernel.name == name) return kernel;
    throw std::invalid_argument("kernel is '" + std::string(name) + "'; this CPU does not support it");
}

}  // namespace hamtarget
