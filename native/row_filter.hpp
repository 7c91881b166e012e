// Rows of a bucket within the radius, and their asymmetric distances where rows are chosen by them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "asymmetric.hpp"
#include "bucket.hpp"
#include "code.hpp"
#include "hits.hpp"

namespace hamtarget {

// What is wanted of the rows of one part.
struct RowFilter {
    const std::uint8_t* query;
    Distance radius;
    std::size_t part;
    const AsymmetricDistance* asymmetric;  // nothing where it is not wanted
};

// Writes the hits among the rows, and how far they are, in the order of the rows, and gives how many they are. Both
// results have room for all rows and kKernelSlack more.
using RowFilterKernel = std::size_t (*)(const RowFilter& filter, Codes codes, const std::uint32_t* rows, Hit* hits,
                                        Asymmetric* distances);

namespace kernels {

#if defined(__x86_64__)

template <int words, bool asymmetric>
[[HAMTARGET_AVX512_VBMI]] std::size_t avx512_filter_rows(const RowFilter& filter, Codes codes,
                                                         const std::uint32_t* rows, Hit* hits,
                                                         Asymmetric* distances) {
    const auto eight = EightRows<words>::of(filter.query);
    const __m512i widest = _mm512_set1_epi64(filter.radius);
    const __m512i stamp = _mm512_set1_epi64(static_cast<long long>(hit_of(0, filter.part, 0)));
    EightAsymmetric eight_asymmetric;
    if constexpr (asymmetric && words == 1) eight_asymmetric = EightAsymmetric::of(*filter.asymmetric);
    std::size_t count = 0;
    for (std::size_t i = 0; i < codes.n_rows; i += 8) {
        const std::size_t left = std::min<std::size_t>(8, codes.n_rows - i);
        const auto here = static_cast<__mmask8>((1u << left) - 1);
        const std::uint8_t* bytes = codes.bytes + 8 * words * i;
        const __m512i apart = eight.distances(bytes, left);
        const __mmask8 found = _mm512_mask_cmple_epu64_mask(here, apart, widest);
        if (!found) continue;
        const __m512i numbers = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(_mm512_maskz_loadu_epi32(here, rows + i)));
        const __m512i all = _mm512_or_si512(_mm512_or_si512(_mm512_slli_epi64(apart, 48), numbers), stamp);
        _mm512_storeu_si512(hits + count, _mm512_maskz_compress_epi64(found, all));
        if constexpr (asymmetric && words == 1) {
            const __m512i units = eight_asymmetric(eight.differing(bytes, 0, left));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(distances + count),
                             _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(found, units)));
        } else if constexpr (asymmetric) {
            std::size_t at = count;
            for (unsigned left_over = found; left_over; left_over &= left_over - 1)
                distances[at++] = (*filter.asymmetric)(bytes + 8 * words * std::countr_zero(left_over));
        }
        count += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(found)));
    }
    return count;
}

template <bool asymmetric>
RowFilterKernel avx512_row_filter(std::size_t n_bytes) {
    return n_bytes == 8    ? avx512_filter_rows<1, asymmetric>
           : n_bytes == 16 ? avx512_filter_rows<2, asymmetric>
           : n_bytes == 32 ? avx512_filter_rows<4, asymmetric>
                           : nullptr;
}

#endif

}  // namespace kernels

// Filters rows by the instructions at hand. Each thread has its own.
class RowFilters {
  public:
    RowFilters(const Kernel& kernel, std::size_t n_bytes, bool asymmetric) : kernel_(kernel) {
#if defined(__x86_64__)
        if (kernel.is_avx512 && __builtin_cpu_supports("avx512vbmi"))
            filter_ = asymmetric ? kernels::avx512_row_filter<true>(n_bytes) : kernels::avx512_row_filter<false>(n_bytes);
#endif
        static_cast<void>(n_bytes), static_cast<void>(asymmetric);
    }

    std::size_t operator()(const RowFilter& filter, Codes codes, const std::uint32_t* rows, Hit* hits,
                           Asymmetric* distances) {
        if (filter_) return filter_(filter, codes, rows, hits, distances);
        std::size_t found = 0;
        for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
            const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
            const std::size_t count =
                kernel_.within(filter.query, block, filter.radius, room_.positions, room_.distances);
            for (std::size_t i = 0; i < count; ++i, ++found) {
                hits[found] = hit_of(room_.distances[i], filter.part, rows[start + room_.positions[i]]);
                if (filter.asymmetric) distances[found] = (*filter.asymmetric)(block.row(room_.positions[i]));
            }
        }
        return found;
    }

  private:
    const Kernel& kernel_;
    RowFilterKernel filter_ = nullptr;
    KernelRoom room_;
};

}  // namespace hamtarget
