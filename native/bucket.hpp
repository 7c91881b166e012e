// Hits of one bucket: the rows within the radius that no earlier table has.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "array.hpp"
#include "code.hpp"
#include "hits.hpp"
#include "segment.hpp"

namespace hamtarget {

// Places of a table, or of rows.
struct Span {
    std::uint32_t start, stop;

    std::size_t size() const { return stop - start; }
};

// The query's own bucket of one table.
struct Lookup {
    std::uint32_t key;
    Span span;
};

// What is wanted of a bucket of one table.
struct BucketScan {
    const std::uint8_t* query;
    Distance radius;
    std::size_t part;
    std::span<const Table> earlier;  // tables whose bucket of the query has been read
    const Lookup* keys;              // the numbers of those buckets
};

// Whether an earlier table has the row in the query's own bucket.
inline bool is_seen(const BucketScan& scan, const std::uint8_t* code) {
    for (std::size_t j = 0; j < scan.earlier.size(); ++j)
        if (scan.earlier[j].key.of(code) == scan.keys[j].key) return true;
    return false;
}

// Where kernels put what they find.
struct KernelRoom {
    std::uint32_t positions[kBlockRows + kKernelSlack];
    Distance distances[kBlockRows + kKernelSlack];
};

namespace kernels {

#if defined(__x86_64__)

[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i broadcast(std::uint64_t number) {
    return _mm512_set1_epi64(static_cast<long long>(number));
}

// Of `found` rows of a register, those that no earlier table has. A row in the query's own bucket of an earlier table
// was found there. Folding is linear: the fold of what differs says where bucket numbers differ.
template <int words>
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __mmask8 avx512_unseen(const BucketScan& scan, const std::uint8_t* codes,
                                                             __m512i differing, __mmask8 found) {
    if constexpr (words == 1) {
        for (const Table& table : scan.earlier) {
            const KeyBits& key = table.key;
            const __m512i substring =
                _mm512_and_si512(_mm512_srlv_epi64(differing, broadcast(key.shift())), broadcast(key.mask()));
            const __m512i folded = _mm512_xor_si512(substring, _mm512_srlv_epi64(substring, broadcast(key.length())));
            found = _mm512_mask_test_epi64_mask(found, folded, broadcast((1ULL << key.length()) - 1));
        }
    } else {
        for (unsigned rows = found; rows; rows &= rows - 1) {
            const int row = std::countr_zero(rows);
            if (is_seen(scan, codes + 8 * words * row)) found ^= static_cast<__mmask8>(1 << row);
        }
    }
    return found;
}

// Everything at once, eight rows at a time, and for codes of 64 bits no branch for a hit.
template <int words>
[[HAMTARGET_AVX512]] inline std::size_t avx512_new_hits(const BucketScan& scan, Codes codes, const std::uint32_t* rows,
                                                        Hit* hits) {
    const auto eight = EightRows<words>::of(scan.query);
    const __m512i widest = broadcast(scan.radius);
    const __m512i stamp = broadcast(hit_of(0, scan.part, 0));
    std::size_t count = 0;
    for (std::size_t i = 0; i < codes.n_rows; i += 8) {
        const std::size_t left = std::min<std::size_t>(8, codes.n_rows - i);
        const auto here = static_cast<__mmask8>((1u << left) - 1);
        const std::uint8_t* bytes = codes.bytes + 8 * words * i;
        const __m512i distances = eight.distances(bytes, left);
        __mmask8 found = _mm512_mask_cmple_epu64_mask(here, distances, widest);
        if (!found) continue;
        found = avx512_unseen<words>(scan, bytes, eight.differing(bytes, 0, left), found);
        const __m512i numbers = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(_mm512_maskz_loadu_epi32(here, rows + i)));
        const __m512i all = _mm512_or_si512(_mm512_or_si512(_mm512_slli_epi64(distances, 48), numbers), stamp);
        // Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
        _mm512_storeu_si512(hits + count, _mm512_maskz_compress_epi64(found, all));
        count += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(found)));
    }
    return count;
}

#endif

}  // namespace kernels

// Appends the hits of a bucket: its codes, and the rows they belong to.
inline void new_hits(const Kernel& kernel, const BucketScan& scan, Codes codes, const std::uint32_t* rows,
                     KernelRoom& room, Growing<Hit>& hits) {
    const std::size_t before = hits.size();
    Hit* to = hits.extend(codes.n_rows + kKernelSlack);
#if defined(__x86_64__)
    if (kernel.is_avx512) {
        using namespace kernels;
        const auto by_eight = codes.n_bytes == 8    ? avx512_new_hits<1>
                              : codes.n_bytes == 16 ? avx512_new_hits<2>
                              : codes.n_bytes == 32 ? avx512_new_hits<4>
                                                    : nullptr;
        if (by_eight) return hits.shrink(before + by_eight(scan, codes, rows, to));
    }
#endif
    std::size_t kept = 0;
    for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
        const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
        const std::size_t count = kernel.within(scan.query, block, scan.radius, room.positions, room.distances);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint8_t* code = block.row(room.positions[i]);
            to[kept] = hit_of(room.distances[i], scan.part, rows[start + room.positions[i]]);
            kept += !is_seen(scan, code);
        }
    }
    hits.shrink(before + kept);
}

}  // namespace hamtarget
