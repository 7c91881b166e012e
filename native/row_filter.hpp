// Rows of a bucket within the radius, and their asymmetric distances where rows are chosen by them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "asymmetric.hpp"
#include "bucket.hpp"
#include "hits.hpp"
#include "kernel.hpp"

namespace hamtarget {

// Rows that lie one after another: those of a bucket, or some of them.
struct RowRun {
    const std::uint8_t* codes;
    const std::uint32_t* rows;
    std::uint32_t count;
    std::uint32_t part;
};

// What is wanted of rows.
struct RowFilter {
    const std::uint8_t* query;
    std::size_t n_bytes;
    Distance radius;
    const AsymmetricDistance* asymmetric;  // nothing where it is not wanted
};

// Runs are far apart in memory: while one is read, so many later ones are being fetched.
inline constexpr std::size_t kRunsAhead = 12;

HAMTARGET_INLINE void prefetch_run(std::span<const RowRun> runs, std::size_t i, std::size_t n_bytes) {
    if (i >= runs.size()) return;
    prefetch_bytes(runs[i].codes, runs[i].count * n_bytes);
    prefetch_bytes(runs[i].rows, runs[i].count * sizeof *runs[i].rows);
}

// Writes the hits among the rows, and how far they are, in the order of the rows, and gives how many they are. Both
// results have room for all rows and kKernelSlack more.
using RowFilterKernel = std::size_t (*)(const RowFilter& filter, std::span<const RowRun> runs, Hit* hits,
                                        Asymmetric* distances);

namespace kernels {

#if defined(__x86_64__)

template <int words, bool asymmetric>
[[HAMTARGET_AVX512_VBMI]] std::size_t avx512_filter_rows(const RowFilter& filter, std::span<const RowRun> runs,
                                                         Hit* hits, Asymmetric* distances) {
    const auto eight = EightRows<words>::of(filter.query);
    const __m512i widest = _mm512_set1_epi64(filter.radius);
    EightAsymmetric eight_asymmetric;
    if constexpr (asymmetric && words == 1) eight_asymmetric = EightAsymmetric::of(*filter.asymmetric);
    std::size_t count = 0;
    for (std::size_t r = 0; r < std::min(kRunsAhead, runs.size()); ++r) prefetch_run(runs, r, 8 * words);
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const RowRun& run = runs[r];
        prefetch_run(runs, r + kRunsAhead, 8 * words);
        const __m512i stamp = _mm512_set1_epi64(static_cast<long long>(hit_of(0, run.part, 0)));
        for (std::size_t i = 0; i < run.count; i += 8) {
            const std::size_t left = std::min<std::size_t>(8, run.count - i);
            const auto here = static_cast<__mmask8>((1u << left) - 1);
            const std::uint8_t* bytes = run.codes + 8 * words * i;
            const __m512i apart = eight.distances(bytes, left);
            const __mmask8 found = _mm512_mask_cmple_epu64_mask(here, apart, widest);
            const __m512i numbers =
                _mm512_cvtepu32_epi64(_mm512_castsi512_si256(_mm512_maskz_loadu_epi32(here, run.rows + i)));
            const __m512i all = _mm512_or_si512(_mm512_or_si512(_mm512_slli_epi64(apart, 48), numbers), stamp);
            _mm512_storeu_si512(hits + count, _mm512_maskz_compress_epi64(found, all));
            if constexpr (asymmetric && words == 1) {
                const __m512i units = eight_asymmetric(eight.differing(bytes, 0, left));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(distances + count),
                                 _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(found, units)));
            } else if constexpr (asymmetric) {
                std::size_t at = count;
                for (unsigned rest = found; rest; rest &= rest - 1)
                    distances[at++] = (*filter.asymmetric)(bytes + 8 * words * std::countr_zero(rest));
            }
            count += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(found)));
        }
    }
    return count;
}

// Sixteen distances at a time.
[[HAMTARGET_AVX512_VBMI]] inline std::size_t avx512_between(const Asymmetric* distances, std::size_t count,
                                                            Asymmetric first, Asymmetric last,
                                                            std::uint32_t* positions) {
    const __m512i lowest = _mm512_set1_epi32(first), width = _mm512_set1_epi32(last - first);
    __m512i here = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::size_t found = 0, i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(distances + i));
        const __m512i above = _mm512_sub_epi32(_mm512_cvtepu16_epi32(narrow), lowest);
        const __mmask16 inside = _mm512_cmple_epu32_mask(above, width);
        _mm512_storeu_si512(positions + found, _mm512_maskz_compress_epi32(inside, here));
        found += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(inside)));
        here = _mm512_add_epi32(here, _mm512_set1_epi32(16));
    }
    for (; i < count; ++i) {
        positions[found] = static_cast<std::uint32_t>(i);
        found += distances[i] >= first && distances[i] <= last;
    }
    return found;
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
            filter_ = (asymmetric ? kernels::avx512_row_filter<true> : kernels::avx512_row_filter<false>)(n_bytes);
#else
        static_cast<void>(n_bytes), static_cast<void>(asymmetric);
#endif
    }

    std::size_t operator()(const RowFilter& filter, std::span<const RowRun> runs, Hit* hits, Asymmetric* distances) {
        if (filter_) return filter_(filter, runs, hits, distances);
        std::size_t found = 0;
        for (std::size_t r = 0; r < runs.size(); ++r) {
            prefetch_run(runs, r + kRunsAhead, filter.n_bytes);
            const Codes codes{runs[r].codes, runs[r].count, filter.n_bytes};
            for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
                const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
                const std::size_t count =
                    kernel_.within(filter.query, block, filter.radius, room_.positions, room_.distances);
                for (std::size_t i = 0; i < count; ++i, ++found) {
                    const std::size_t row = runs[r].rows[start + room_.positions[i]];
                    hits[found] = hit_of(room_.distances[i], runs[r].part, row);
                    if (filter.asymmetric) distances[found] = (*filter.asymmetric)(block.row(room_.positions[i]));
                }
            }
        }
        return found;
    }

    // Where distances from `first` to `last` are; there is room for all positions and kKernelSlack more.
    std::size_t between(const Asymmetric* distances, std::size_t count, Asymmetric first, Asymmetric last,
                        std::uint32_t* positions) const {
#if defined(__x86_64__)
        if (filter_) return kernels::avx512_between(distances, count, first, last, positions);
#endif
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            positions[found] = static_cast<std::uint32_t>(i);
            found += distances[i] >= first && distances[i] <= last;
        }
        return found;
    }

  private:
    const Kernel& kernel_;
    RowFilterKernel filter_ = nullptr;
    KernelRoom room_;
};

}  // namespace hamtarget
