// Hits of one bucket: the rows within the radius that no earlier table has.
//
// A search that flips no bit reads the query's own bucket of each table. A row within the radius shares a whole substring
// with the query, so the first table whose substring it shares is where it counts. (To share the bucket number is not
// enough: that would have to be folded for every row and table, where comparing substrings takes one instruction.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel.hpp"
#include "row_lists.hpp"
#include "segment.hpp"

namespace hamtarget {

// Places of a table, or of rows.
struct Span {
    std::uint32_t start, stop;

    std::size_t size() const { return stop - start; }
};

// What is wanted of the query's own bucket of one table.
struct BucketScan {
    const std::uint8_t* query;
    Distance radius;
    std::span<const Table> tables;  // the last one's bucket is read; those of the others have been
};

// Whether this table is the first whose substring the code shares with the query.
inline bool is_first(const BucketScan& scan, const std::uint8_t* code) {
    const auto shares = [&](const Table& table) {
        return table.key.substring_of(code) == table.key.substring_of(scan.query);
    };
    const std::size_t last = scan.tables.size() - 1;
    for (std::size_t j = 0; j < last; ++j)
        if (shares(scan.tables[j])) return false;
    return shares(scan.tables[last]);
}

// Where kernels put what they find.
struct KernelRoom {
    std::uint32_t positions[kBlockRows + kKernelSlack];
    Distance distances[kBlockRows + kKernelSlack];
};

namespace kernels {

#if defined(__x86_64__)

// Lanes, of `rows`, whose substring differs from the query's. A substring reaches into at most two words.
template <int words>
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __mmask8 avx512_differs(const KeyBits& key, const __m512i* differing,
                                                              __mmask8 rows) {
    const std::size_t word = words == 1 ? 0 : key.word();
    __mmask8 differs = _mm512_mask_test_epi64_mask(rows, differing[word], broadcast(key.bits()));
    if constexpr (words > 1)
        if (key.bits_of_next())
            differs |= _mm512_mask_test_epi64_mask(rows, differing[word + 1], broadcast(key.bits_of_next()));
    return differs;
}

// Everything at once, eight rows at a time, and no branch for a hit.
template <int words>
[[HAMTARGET_AVX512]] inline void avx512_read_bucket(const BucketScan& scan, Codes codes, const std::uint32_t* rows,
                                                    RowLists& lists) {
    const auto eight = EightRows<words>::of(scan.query);
    const __m512i widest = broadcast(scan.radius);
    const std::span<const Table> earlier = scan.tables.first(scan.tables.size() - 1);
    std::uint32_t* const sizes = lists.sizes();
    for (std::size_t i = 0; i < codes.n_rows; i += 8) {
        const std::size_t left = std::min<std::size_t>(8, codes.n_rows - i);
        const auto here = static_cast<__mmask8>((1u << left) - 1);
        __m512i differing[words];
        eight.differing_words(codes.bytes + 8 * words * i, left, differing);
        __m512i distances = _mm512_popcnt_epi64(differing[0]);
        for (int w = 1; w < words; ++w) distances = _mm512_add_epi64(distances, _mm512_popcnt_epi64(differing[w]));
        __mmask8 found = _mm512_mask_cmple_epu64_mask(here, distances, widest);
        if (!found) continue;
        for (const Table& table : earlier) found = avx512_differs<words>(table.key, differing, found);
        found &= static_cast<__mmask8>(~avx512_differs<words>(scan.tables.back().key, differing, found));
        const __m256i numbers = _mm256_maskz_loadu_epi32(here, rows + i);
        for (std::size_t distance = 0; distance <= scan.radius; ++distance) {
            const __mmask8 at = _mm512_mask_cmpeq_epi64_mask(found, distances, broadcast(distance));
            // Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(lists.list(distance) + sizes[distance]),
                                _mm256_maskz_compress_epi32(at, numbers));
            sizes[distance] += static_cast<std::uint32_t>(std::popcount(static_cast<unsigned>(at)));
        }
    }
}

#endif

}  // namespace kernels

// Adds a run of hits to the lists: those of a bucket with these codes, and the rows they belong to.
inline void read_bucket(const Kernel& kernel, const BucketScan& scan, Codes codes, const std::uint32_t* rows,
                        KernelRoom& room, RowLists& lists) {
#if defined(__x86_64__)
    if (kernel.is_avx512) {
        using namespace kernels;
        const auto by_eight = codes.n_bytes == 8    ? avx512_read_bucket<1>
                              : codes.n_bytes == 16 ? avx512_read_bucket<2>
                              : codes.n_bytes == 32 ? avx512_read_bucket<4>
                                                    : nullptr;
        if (by_eight) {
            by_eight(scan, codes, rows, lists);
            return lists.end_run();
        }
    }
#endif
    for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
        const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
        const std::size_t count = kernel.within(scan.query, block, scan.radius, room.positions, room.distances);
        for (std::size_t i = 0; i < count; ++i)
            if (is_first(scan, block.row(room.positions[i])))
                lists.push(room.distances[i], rows[start + room.positions[i]]);
    }
    lists.end_run();
}

}  // namespace hamtarget
