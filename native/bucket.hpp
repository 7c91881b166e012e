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

// A group of rows of a bucket against the query: two halves of eight, or, of long codes, eight. (Buckets of long codes
// are small, and all of a half that is empty would be worked out for nothing.)
template <int words>
struct Group {
    static constexpr std::size_t kHalves = words == 4 ? 1 : 2;
    static constexpr std::size_t kRows = 8 * kHalves;

    __m512i differing[kHalves][words];
    __m512i distances[kHalves];
    __mmask8 found[kHalves];

    // Rows within the radius, of the first `n_rows`.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE void read(const EightRows<words>& eight, const std::uint8_t* codes,
                                                    std::size_t n_rows, __m512i radius) {
        for (std::size_t half = 0; half < kHalves; ++half) {
            const std::size_t left = n_rows > 8 * half ? std::min<std::size_t>(8, n_rows - 8 * half) : 0;
            eight.differing_words(codes + 64 * words * half, left, differing[half]);
            distances[half] = _mm512_popcnt_epi64(differing[half][0]);
            for (int w = 1; w < words; ++w)
                distances[half] = _mm512_add_epi64(distances[half], _mm512_popcnt_epi64(differing[half][w]));
            const auto there = static_cast<__mmask8>((1u << left) - 1);
            found[half] = _mm512_mask_cmple_epu64_mask(there, distances[half], radius);
        }
    }

    // Which of the rows found have a substring that differs from the query's. It reaches into at most two words.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __mmask8 differs(const KeyBits& key, std::size_t half) const {
        const std::size_t word = words == 1 ? 0 : key.word();
        __mmask8 rows = _mm512_mask_test_epi64_mask(found[half], differing[half][word], broadcast(key.bits()));
        if constexpr (words > 1)
            if (key.bits_of_next())
                rows |= _mm512_mask_test_epi64_mask(found[half], differing[half][word + 1],
                                                    broadcast(key.bits_of_next()));
        return rows;
    }

    [[HAMTARGET_AVX512]] HAMTARGET_INLINE void keep_first(const OwnBuckets& buckets, std::size_t table) {
        for (std::size_t j = 0; j < table; ++j)
            for (std::size_t half = 0; half < kHalves; ++half) found[half] = differs(buckets.tables[j].key, half);
        for (std::size_t half = 0; half < kHalves; ++half)
            found[half] &= static_cast<__mmask8>(~differs(buckets.tables[table].key, half));
    }

    HAMTARGET_INLINE bool has_any() const {
        if constexpr (kHalves == 1) return found[0];
        return found[0] | found[1];
    }

    // Those at one distance.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __mmask16 at(std::size_t distance) const {
        const __mmask8 low = _mm512_mask_cmpeq_epi64_mask(found[0], distances[0], broadcast(distance));
        if constexpr (kHalves == 1) return low;
        return _mm512_kunpackb(_mm512_mask_cmpeq_epi64_mask(found[1], distances[1], broadcast(distance)), low);
    }
};

// Appends rows to a list, and moves its end.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE void avx512_append(__mmask16 which, __m512i rows, std::uint32_t*& end) {
    // Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
    _mm512_storeu_si512(end, _mm512_maskz_compress_epi32(which, rows));
    end += std::popcount(static_cast<unsigned>(which));
}

// One after another rather than in a loop: then the compiler keeps the ends in registers.
template <int words, std::size_t... each>
[[HAMTARGET_AVX512]] HAMTARGET_INLINE void avx512_append_each(std::index_sequence<each...>,
                                                              const Group<words>& group, __m512i rows,
                                                              std::uint32_t** ends) {
    (avx512_append(group.at(each), rows, ends[each]), ...);
}
template <std::size_t... each>
HAMTARGET_INLINE void end_runs(std::index_sequence<each...>, RowLists& lists, std::size_t run, std::uint32_t** ends) {
    (lists.end_run(run, each, ends[each]), ...);
}

// Everything at once, a group of rows at a time, and no branch for a hit. Lists whose number the compiler knows have
// their ends in registers; n_lists 0 is for any number.
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
        for (std::size_t i = 0; i < n_rows; i += Group<words>::kRows) {
            const std::uint8_t* bytes = codes + 8 * words * i;
            // The beginning of the bucket was fetched before.
            if (8 * words * (n_rows - i) > kPrefetchedBytes) {
                for (std::size_t at = 0; at < 8 * words * Group<words>::kRows; at += 64)
                    __builtin_prefetch(bytes + kPrefetchedBytes + at);
                __builtin_prefetch(rows + i + kPrefetchedBytes / sizeof *rows);
            }
            Group<words> group;
            group.read(eight, bytes, n_rows - i, widest);
            if (!group.has_any()) continue;
            group.keep_first(buckets, table);
            const auto there = static_cast<__mmask16>(n_rows - i < 16 ? (1u << (n_rows - i)) - 1 : 0xFFFF);
            const __m512i numbers = _mm512_maskz_loadu_epi32(there, rows + i);
            if constexpr (n_lists > 0)
                avx512_append_each(known, group, numbers, ends);
            else
                for (std::size_t d = 0; d < n_ends; ++d) avx512_append(group.at(d), numbers, ends[d]);
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
