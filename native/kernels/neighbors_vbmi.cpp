// Reading cells by AVX-512 with VBMI and VNNI: x86 servers since 2021.
#include "neighbor_loops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

namespace hamtarget {

namespace {

// Looks up the values of four parts of 16 rows at once: a register holds 64 entries, those of four parts.
class GroupLookup {
  public:
    // Sum up the parts of two groups, of which each byte has one in its low and one in its high bits.
    HAMTARGET_INLINE static __m512i add_pair(__m512i sums, const std::uint8_t* bytes, const std::uint8_t* entries,
                                             const std::uint8_t* weights) {
        const __m512i values = _mm512_loadu_si512(bytes);
        sums = add(sums, values, entries, weights);
        return add(sums, _mm512_srli_epi32(values, 4), entries + kGroupTable, weights + kGroupParts);
    }

    // Sum up the parts of a group of which each byte has two lanes.
    HAMTARGET_INLINE static __m512i add_single(__m512i sums, const std::uint8_t* bytes, const std::uint8_t* entries,
                                               const std::uint8_t* weights) {
        const __m512i both =
            _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
        const __m512i shifts = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
        return add(sums, _mm512_srlv_epi64(both, shifts), entries, weights);
    }

  private:
    HAMTARGET_INLINE static __m512i add(__m512i sums, __m512i values, const std::uint8_t* entries,
                                        const std::uint8_t* weights) {
        const __m512i low_bits = _mm512_set1_epi8(15), parts = _mm512_set1_epi32(0x30201000);
        // (values & low_bits) | parts
        const __m512i places = _mm512_ternarylogic_epi32(values, low_bits, parts, 0xEA);
        const __m512i found = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(entries));
        std::int32_t four;
        std::memcpy(&four, weights, sizeof four);
        return _mm512_dpbusd_epi32(sums, found, _mm512_set1_epi32(four));
    }
};

HAMTARGET_INLINE std::size_t write_found(__mmask16 mask, __m512i block_sums, std::size_t first, std::int32_t* sums,
                                         std::uint32_t* rows, std::size_t count) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i numbers = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(first)));
    // Compressing in registers and storing all of it is faster than a store that compresses.
    _mm512_storeu_si512(sums + count, _mm512_maskz_compress_epi32(mask, block_sums));
    _mm512_storeu_si512(rows + count, _mm512_maskz_compress_epi32(mask, numbers));
    return count + static_cast<std::size_t>(__builtin_popcount(mask));
}

// Blocks that are summed up side by side: their additions wait for each other otherwise.
constexpr std::size_t kBlocks = 4;

template <std::size_t n_blocks>
HAMTARGET_INLINE std::size_t scan_blocks(const std::uint8_t* sketches, std::size_t first, std::size_t n_rows,
                                         const SketchTables& tables, __m512i bounds, std::int32_t* sums,
                                         std::uint32_t* rows, std::size_t count) {
    const std::size_t block_bytes = tables.n_groups * kGroupBytes;
    const std::uint8_t* block = sketches + first / kSketchBlockRows * block_bytes;
    __m512i block_sums[n_blocks];
    for (std::size_t b = 0; b < n_blocks; ++b) block_sums[b] = _mm512_setzero_si512();
    std::size_t group = 0;
    for (; group + 2 <= tables.n_groups; group += 2)
        for (std::size_t b = 0; b < n_blocks; ++b)
            block_sums[b] = GroupLookup::add_pair(block_sums[b], block + b * block_bytes + group * kGroupBytes,
                                                  tables.entries + group * kGroupTable,
                                                  tables.weights + group * kGroupParts);
    if (group < tables.n_groups)
        for (std::size_t b = 0; b < n_blocks; ++b)
            block_sums[b] = GroupLookup::add_single(block_sums[b], block + b * block_bytes + group * kGroupBytes,
                                                    tables.entries + group * kGroupTable,
                                                    tables.weights + group * kGroupParts);
    __mmask16 masks[n_blocks];
    unsigned any = 0;
    for (std::size_t b = 0; b < n_blocks; ++b) {
        masks[b] = _mm512_cmple_epi32_mask(block_sums[b], bounds);
        any |= masks[b];
    }
    if (!any) return count;
    for (std::size_t b = 0; b < n_blocks; ++b) {
        const std::size_t begin = first + b * kSketchBlockRows;
        if (n_rows - begin < kSketchBlockRows) masks[b] &= static_cast<__mmask16>((1u << (n_rows - begin)) - 1);
        if (masks[b]) count = write_found(masks[b], block_sums[b], begin, sums, rows, count);
    }
    return count;
}

std::size_t scan_by_vbmi(const std::uint8_t* sketches, std::size_t n_rows, const SketchTables& tables,
                         std::int32_t bound, std::int32_t* sums, std::uint32_t* rows) {
    const __m512i bounds = _mm512_set1_epi32(bound);
    std::size_t count = 0, first = 0;
    for (; first + (kBlocks - 1) * kSketchBlockRows < n_rows; first += kBlocks * kSketchBlockRows)
        count = scan_blocks<kBlocks>(sketches, first, n_rows, tables, bounds, sums, rows, count);
    for (; first < n_rows; first += kSketchBlockRows)
        count = scan_blocks<1>(sketches, first, n_rows, tables, bounds, sums, rows, count);
    return count;
}

// Compare kQueries queries with kCentreBlocks blocks of centres.
template <std::size_t kQueries, std::size_t kCentreBlocks>
HAMTARGET_INLINE void score_blocks(const Int8Centres& centres, const Int8Query* queries, std::size_t block,
                                   float* scores) {
    __m512i sums[kQueries][kCentreBlocks];
    for (auto& of_query : sums)
        for (__m512i& sum : of_query) sum = _mm512_setzero_si512();
    const std::int8_t* begin = centres.elements + block * centres.n_fours * 64;
    for (std::size_t four = 0; four < centres.n_fours; ++four) {
        __m512i elements[kCentreBlocks];
        for (std::size_t b = 0; b < kCentreBlocks; ++b)
            elements[b] = _mm512_loadu_si512(begin + (b * centres.n_fours + four) * 64);
        for (std::size_t q = 0; q < kQueries; ++q) {
            std::int32_t own;
            std::memcpy(&own, queries[q].elements + 4 * four, sizeof own);
            const __m512i wanted = _mm512_set1_epi32(own);
            for (std::size_t b = 0; b < kCentreBlocks; ++b)
                sums[q][b] = _mm512_dpbusd_epi32(sums[q][b], wanted, elements[b]);
        }
    }
    for (std::size_t q = 0; q < kQueries; ++q)
        for (std::size_t b = 0; b < kCentreBlocks; ++b) {
            const std::size_t centre = (block + b) * 16;
            const __m512 start = _mm512_fnmadd_ps(_mm512_set1_ps(queries[q].lowest),
                                                  _mm512_loadu_ps(centres.sums + centre),
                                                  _mm512_loadu_ps(centres.norms + centre));
            _mm512_storeu_ps(scores + q * centres.n_blocks * 16 + centre,
                             _mm512_fnmadd_ps(_mm512_set1_ps(queries[q].step), _mm512_cvtepi32_ps(sums[q][b]), start));
        }
}

template <std::size_t kQueries>
HAMTARGET_INLINE void score_all(const Int8Centres& centres, const Int8Query* queries, float* scores) {
    constexpr std::size_t kTogether = kQueries == 1 ? 8 : 4;
    std::size_t block = 0;
    for (; block + kTogether <= centres.n_blocks; block += kTogether)
        score_blocks<kQueries, kTogether>(centres, queries, block, scores);
    for (; block < centres.n_blocks; ++block) score_blocks<kQueries, 1>(centres, queries, block, scores);
}

void centre_scores_by_vnni(const Int8Centres& centres, const Int8Query* queries, std::size_t n_queries,
                           float* scores) {
    const std::size_t stride = centres.n_blocks * 16;
    std::size_t q = 0;
    for (; q + 6 <= n_queries; q += 6) score_all<6>(centres, queries + q, scores + q * stride);
    for (; q < n_queries; ++q) score_all<1>(centres, queries + q, scores + q * stride);
}

std::size_t at_most_by_avx512(const float* scores, std::size_t count, float bound, std::uint32_t* places) {
    const __m512 bounds = _mm512_set1_ps(bound);
    __m512i numbers = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; i += 16) {
        const auto there = static_cast<__mmask16>(count - i < 16 ? (1u << (count - i)) - 1 : 0xFFFF);
        const __mmask16 mask =
            _mm512_mask_cmp_ps_mask(there, _mm512_maskz_loadu_ps(there, scores + i), bounds, _CMP_LE_OQ);
        if (mask) {
            _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(mask, numbers));
            found += static_cast<std::size_t>(__builtin_popcount(mask));
        }
        numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(16));
    }
    return found;
}

std::size_t keep_sums_by_avx512(std::int32_t* sums, std::uint32_t* places, std::size_t n_sums, std::int32_t bound) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n_sums; i += 16) {
        const auto there = static_cast<__mmask16>(n_sums - i < 16 ? (1u << (n_sums - i)) - 1 : 0xFFFF);
        const __m512i some = _mm512_maskz_loadu_epi32(there, sums + i);
        const __m512i their_places = _mm512_maskz_loadu_epi32(there, places + i);
        const __mmask16 mask = _mm512_mask_cmple_epi32_mask(there, some, _mm512_set1_epi32(bound));
        const auto count = static_cast<unsigned>(__builtin_popcount(mask));
        // What is kept never reaches past what was read.
        const auto written = static_cast<__mmask16>((1u << count) - 1);
        _mm512_mask_storeu_epi32(sums + kept, written, _mm512_maskz_compress_epi32(mask, some));
        _mm512_mask_storeu_epi32(places + kept, written, _mm512_maskz_compress_epi32(mask, their_places));
        kept += count;
    }
    return kept;
}

struct Int8Elements {
    HAMTARGET_INLINE static __m512 load(const std::uint8_t* row, std::size_t d, __mmask16 there) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(there, row + d)));
    }
};

struct Uint8Elements {
    HAMTARGET_INLINE static __m512 load(const std::uint8_t* row, std::size_t d, __mmask16 there) {
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, row + d)));
    }
};

struct Float16Elements {
    HAMTARGET_INLINE static __m512 load(const std::uint8_t* row, std::size_t d, __mmask16 there) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, row + 2 * d));
    }
};

struct Float32Elements {
    HAMTARGET_INLINE static __m512 load(const std::uint8_t* row, std::size_t d, __mmask16 there) {
        return _mm512_maskz_loadu_ps(there, reinterpret_cast<const float*>(row + 4 * d));
    }
};

template <class Elements, bool kIsScaled, bool kSquares>
void rank_by_avx512(const float* query, std::size_t n_dims, const RankedRows& ranked, float* sums) {
    constexpr __mmask16 kAll = 0xFFFF;
    const auto rest = static_cast<__mmask16>((1u << n_dims % 16) - 1);
    for (std::size_t i = 0; i < kRowsAhead; ++i) fetch_row(ranked, i);
    for (std::size_t i = 0; i < ranked.n_rows; ++i) {
        fetch_row(ranked, i + kRowsAhead);
        const std::uint8_t* row = ranked.vectors + std::size_t{ranked.rows[i]} * ranked.n_bytes;
        const float scale = kIsScaled ? ranked.scales[ranked.rows[i]] : 1;
        const __m512 scales = _mm512_set1_ps(scale);
        __m512 lanes[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
        const auto add = [&](std::size_t lane, std::size_t d, __mmask16 there) __attribute__((always_inline)) {
            const __m512 element = Elements::load(row, d, there);
            const __m512 wanted = _mm512_maskz_loadu_ps(there, query + d);
            if constexpr (kSquares) {
                const __m512 apart = kIsScaled ? _mm512_fnmadd_ps(scales, element, wanted)
                                               : _mm512_sub_ps(wanted, element);
                lanes[lane] = _mm512_fmadd_ps(apart, apart, lanes[lane]);
            } else {
                lanes[lane] = _mm512_fmadd_ps(wanted, element, lanes[lane]);
            }
        };
        std::size_t d = 0;
        for (; d + 64 <= n_dims; d += 64)
            for (std::size_t lane = 0; lane < 4; ++lane) add(lane, d + 16 * lane, kAll);
        for (; d + 16 <= n_dims; d += 16) add(0, d, kAll);
        if (d < n_dims) add(1, d, rest);
        const float sum = _mm512_reduce_add_ps(
            _mm512_add_ps(_mm512_add_ps(lanes[0], lanes[1]), _mm512_add_ps(lanes[2], lanes[3])));
        sums[i] = kIsScaled && !kSquares ? scale * sum : sum;
    }
}

}  // namespace

extern const NeighborKernel kVbmiNeighbors;
constinit const NeighborKernel kVbmiNeighbors = {
    .name = "avx512vbmi",
    .scan = scan_by_vbmi,
    .squares = {rank_by_avx512<Int8Elements, true, true>, rank_by_avx512<Uint8Elements, false, true>,
                rank_by_avx512<Float16Elements, false, true>, rank_by_avx512<Float32Elements, false, true>},
    .products = {rank_by_avx512<Int8Elements, true, false>, rank_by_avx512<Uint8Elements, false, false>,
                 rank_by_avx512<Float16Elements, false, false>, rank_by_avx512<Float32Elements, false, false>},
    .centre_scores = centre_scores_by_vnni,
    .bound_of_scores = bound_of_scores_by_loops,
    .at_most = at_most_by_avx512,
    .bound_of_sums = bound_of_sums_by_loops,
    .keep_sums = keep_sums_by_avx512,
    .dot = dot,
    .nearest = nearest_by_loops,
    .sketch = sketch_by_loops,
    .part_products = part_products_by_loops,
    .widest = widest_by_loops,
    .quantise = quantise_by_loops};

}  // namespace hamtarget

#endif
