// Hits in the query's own bucket of each table: the rows within the radius, each once.
//
// A search that flips no bit reads these buckets only. A row within the radius shares a whole substring with the query,
// and the first table whose substring it shares is where it counts. (To share the bucket number is not enough: it would
// have to be folded for every row and table, where comparing substrings takes one instruction.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernel.hpp"
#include "row_lists.hpp"
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

struct OwnBuckets {
    const std::uint8_t* query;
    std::size_t n_bytes;  // of a code
    Distance radius;
    std::span<const Table> tables;
    const Lookup* lookups;  // in each of them

    Codes codes(std::size_t table) const {
        const Span span = lookups[table].span;
        return {tables[table].codes.data() + span.start * n_bytes, span.size(), n_bytes};
    }
    const std::uint32_t* rows(std::size_t table) const {
        return tables[table].rows.data() + lookups[table].span.start;
    }
};

// Where kernels put what they find.
struct KernelRoom {
    std::uint32_t positions[kBlockRows + kKernelSlack];
    Distance distances[kBlockRows + kKernelSlack];
};

// Whether this table is the first whose substring the code shares with the query.
inline bool is_first(const OwnBuckets& buckets, std::size_t table, const std::uint8_t* code) {
    const auto shares = [&](std::size_t j) {
        const KeyBits& key = buckets.tables[j].key;
        return key.substring_of(code) == key.substring_of(buckets.query);
    };
    for (std::size_t j = 0; j < table; ++j)
        if (shares(j)) return false;
    return shares(table);
}

namespace kernels {

#if defined(__x86_64__)

// Lanes, of `rows`, whose substring differs from the query's. It reaches into at most two words.
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

// Appends the rows at one distance to its list, and moves the end of the list.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE void avx512_append(__mmask8 found, __m512i distances, std::size_t distance,
                                                         __m256i rows, std::uint32_t*& end) {
    const __mmask8 at = _mm512_mask_cmpeq_epi64_mask(found, distances, broadcast(distance));
    // Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(end), _mm256_maskz_compress_epi32(at, rows));
    end += std::popcount(static_cast<unsigned>(at));
}

// One after another rather than in a loop: then the compiler keeps the ends in registers.
template <std::size_t... each>
[[HAMTARGET_AVX512]] HAMTARGET_INLINE void avx512_append_each(std::index_sequence<each...>, __mmask8 found,
                                                              __m512i distances, __m256i rows, std::uint32_t** ends) {
    (avx512_append(found, distances, each, rows, ends[each]), ...);
}
template <std::size_t... each>
HAMTARGET_INLINE void end_runs(std::index_sequence<each...>, RowLists& lists, std::size_t run, std::uint32_t** ends) {
    (lists.end_run(run, each, ends[each]), ...);
}

// Everything at once, eight rows at a time, and no branch for a hit. Lists whose number the compiler knows have their
// ends in registers; n_lists 0 is for any number.
template <int words, std::size_t n_lists, class Before>
[[HAMTARGET_AVX512]] inline void avx512_read_buckets(const OwnBuckets& buckets, RowLists& lists, Before before) {
    const auto eight = EightRows<words>::of(buckets.query);
    const __m512i widest = broadcast(buckets.radius);
    const std::size_t n_ends = n_lists ? n_lists : lists.n_lists();
    constexpr auto known = std::make_index_sequence<n_lists>();
    std::uint32_t* ends[n_lists ? n_lists : RowLists::kMostLists];
#pragma GCC unroll 4
    for (std::size_t d = 0; d < n_ends; ++d) ends[d] = lists.list(d);
    for (std::size_t table = 0; table < buckets.tables.size(); ++table) {
        before(table);
        const std::uint8_t* codes = buckets.codes(table).bytes;
        const std::uint32_t* rows = buckets.rows(table);
        const std::size_t n_rows = buckets.lookups[table].span.size();
        for (std::size_t i = 0; i < n_rows; i += 8) {
            const std::size_t left = std::min<std::size_t>(8, n_rows - i);
            const auto here = static_cast<__mmask8>((1u << left) - 1);
            __m512i differing[words];
            eight.differing_words(codes + 8 * words * i, left, differing);
            __m512i distances = _mm512_popcnt_epi64(differing[0]);
            for (int w = 1; w < words; ++w) distances = _mm512_add_epi64(distances, _mm512_popcnt_epi64(differing[w]));
            __mmask8 found = _mm512_mask_cmple_epu64_mask(here, distances, widest);
            if (!found) continue;
            for (std::size_t j = 0; j < table; ++j)
                found = avx512_differs<words>(buckets.tables[j].key, differing, found);
            found &= static_cast<__mmask8>(~avx512_differs<words>(buckets.tables[table].key, differing, found));
            const __m256i numbers = _mm256_maskz_loadu_epi32(here, rows + i);
            if constexpr (n_lists > 0)
                avx512_append_each(known, found, distances, numbers, ends);
            else
                for (std::size_t d = 0; d < n_ends; ++d) avx512_append(found, distances, d, numbers, ends[d]);
        }
        if constexpr (n_lists > 0)
            end_runs(known, lists, table, ends);
        else
            for (std::size_t d = 0; d < n_ends; ++d) lists.end_run(table, d, ends[d]);
    }
}

template <int words, class Before>
[[HAMTARGET_AVX512]] inline void avx512_read_buckets(const OwnBuckets& buckets, RowLists& lists, Before before) {
    switch (lists.n_lists()) {
        case 1: return avx512_read_buckets<words, 1>(buckets, lists, before);
        case 2: return avx512_read_buckets<words, 2>(buckets, lists, before);
        case 3: return avx512_read_buckets<words, 3>(buckets, lists, before);
        case 4: return avx512_read_buckets<words, 4>(buckets, lists, before);
        default: return avx512_read_buckets<words, 0>(buckets, lists, before);
    }
}

#endif

}  // namespace kernels

// Puts the hits into the lists, which have room for all rows: a run for each bucket. Calls before(table) before each.
template <class Before>
void read_buckets(const Kernel& kernel, const OwnBuckets& buckets, KernelRoom& room, RowLists& lists, Before before) {
#if defined(__x86_64__)
    if (kernel.is_avx512) {
        switch (buckets.n_bytes) {
            case 8: return kernels::avx512_read_buckets<1>(buckets, lists, before);
            case 16: return kernels::avx512_read_buckets<2>(buckets, lists, before);
            case 32: return kernels::avx512_read_buckets<4>(buckets, lists, before);
        }
    }
#endif
    std::uint32_t* ends[RowLists::kMostLists];
    for (std::size_t d = 0; d < lists.n_lists(); ++d) ends[d] = lists.list(d);
    for (std::size_t table = 0; table < buckets.tables.size(); ++table) {
        before(table);
        const Codes codes = buckets.codes(table);
        for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
            const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
            const std::size_t count =
                kernel.within(buckets.query, block, buckets.radius, room.positions, room.distances);
            for (std::size_t i = 0; i < count; ++i) {
                std::uint32_t*& end = ends[room.distances[i]];
                *end = buckets.rows(table)[start + room.positions[i]];
                end += is_first(buckets, table, block.row(room.positions[i]));
            }
        }
        for (std::size_t d = 0; d < lists.n_lists(); ++d) lists.end_run(table, d, ends[d]);
    }
}

}  // namespace hamtarget
