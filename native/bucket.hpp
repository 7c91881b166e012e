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

// What is wanted of a bucket of one table.
struct BucketScan {
    const std::uint8_t* query;
    Distance radius;
    std::size_t part;
    std::span<const Table> earlier;  // tables whose bucket of the query has been read
};

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

// For codes of 64 bits, everything at once, eight rows at a time and no branch for a hit.
[[HAMTARGET_AVX512]] inline std::size_t avx512_new_hits(const BucketScan& scan, Codes codes, const std::uint32_t* rows,
                                                        Hit* hits) {
    std::uint64_t word;
    std::memcpy(&word, scan.query, sizeof word);
    const __m512i wanted = broadcast(word);
    const __m512i widest = broadcast(scan.radius);
    const __m512i stamp = broadcast(hit_of(0, scan.part, 0));
    std::size_t count = 0;
    for (std::size_t i = 0; i < codes.n_rows; i += 8) {
        const std::size_t left = codes.n_rows - i;
        const auto here = static_cast<__mmask8>(left >= 8 ? 0xFF : (1u << left) - 1);
        const __m512i differing = _mm512_xor_si512(_mm512_maskz_loadu_epi64(here, codes.bytes + 8 * i), wanted);
        const __m512i distances = _mm512_popcnt_epi64(differing);
        __mmask8 found = _mm512_mask_cmple_epu64_mask(here, distances, widest);
        // A row in the query's own bucket of an earlier table was found there. Folding is linear: the fold of what
        // differs says where bucket numbers differ.
        for (const Table& table : scan.earlier) {
            const __m512i substring =
                _mm512_and_si512(_mm512_srlv_epi64(differing, broadcast(table.key.shift())), broadcast(table.key.mask()));
            const __m512i folded =
                _mm512_xor_si512(substring, _mm512_srlv_epi64(substring, broadcast(table.key.length())));
            found = _mm512_mask_test_epi64_mask(found, folded, broadcast((1ULL << table.key.length()) - 1));
        }
        if (!found) continue;
        const __m512i numbers =
            _mm512_cvtepu32_epi64(_mm512_castsi512_si256(_mm512_maskz_loadu_epi32(here, rows + i)));
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
    std::size_t kept = 0;
#if defined(__x86_64__)
    if (codes.n_bytes == 8 && kernel.is_avx512) {
        kept = kernels::avx512_new_hits(scan, codes, rows, to);
        hits.shrink(before + kept);
        return;
    }
#endif
    for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
        const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
        const std::size_t count = kernel.within(scan.query, block, scan.radius, room.positions, room.distances);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint8_t* code = block.row(room.positions[i]);
            bool seen = false;
            for (const Table& table : scan.earlier) seen |= table.key.of(code) == table.key.of(scan.query);
            to[kept] = hit_of(room.distances[i], scan.part, rows[start + room.positions[i]]);
            kept += !seen;
        }
    }
    hits.shrink(before + kept);
}

}  // namespace hamtarget
