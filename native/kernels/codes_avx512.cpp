// Work on codes by AVX-512 with VPOPCNTDQ and VBMI: x86 CPUs since Ice Lake (2019) and Zen 4 (2022).
#include "code_loops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <utility>

namespace hamtarget {

namespace {

HAMTARGET_INLINE __m512i broadcast(std::uint64_t number) {
    return _mm512_set1_epi64(static_cast<long long>(number));
}

// Compares eight rows of 1, 2 or 4 words, which lie one after another, with one query.
template <int words>
struct EightRows {
    static_assert(words == 1 || words == 2 || words == 4);
    __m512i wanted;  // the query's words, again and again

    HAMTARGET_INLINE static EightRows of(const std::uint8_t* query) {
        if constexpr (words == 1) {
            std::uint64_t word;
            std::memcpy(&word, query, sizeof word);
            return {broadcast(word)};
        } else if constexpr (words == 2) {
            return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(query)))};
        } else {
            return {_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(query)))};
        }
    }

    // Return the bits that differ in 64 bytes of the rows. Only the first `n_rows` rows exist.
    HAMTARGET_INLINE __m512i differing(const std::uint8_t* rows, int part, std::size_t n_rows) const {
        const int left = static_cast<int>(n_rows) * words - 8 * part;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xFF : left <= 0 ? 0 : (1 << left) - 1);
        return _mm512_xor_si512(_mm512_maskz_loadu_epi64(lanes, rows + 64 * part), wanted);
    }

    // Sort the bits that differ by word: result[w] gets those of word w of each row.
    HAMTARGET_INLINE void differing_words(const std::uint8_t* rows, std::size_t n, __m512i* result) const {
        if constexpr (words == 1) {
            result[0] = differing(rows, 0, n);
        } else if constexpr (words == 2) {
            const __m512i low = differing(rows, 0, n), high = differing(rows, 1, n);
            result[0] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), high);
            result[1] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), high);
        } else {
            const __m512i first_two = _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13);
            const __m512i last_two = _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15);
            const __m512i a = differing(rows, 0, n), b = differing(rows, 1, n);
            const __m512i c = differing(rows, 2, n), d = differing(rows, 3, n);
            const __m512i low = _mm512_permutex2var_epi64(a, first_two, b);
            const __m512i high = _mm512_permutex2var_epi64(c, first_two, d);
            const __m512i low_last = _mm512_permutex2var_epi64(a, last_two, b);
            const __m512i high_last = _mm512_permutex2var_epi64(c, last_two, d);
            result[0] = _mm512_shuffle_i64x2(low, high, 0x44);
            result[1] = _mm512_shuffle_i64x2(low, high, 0xEE);
            result[2] = _mm512_shuffle_i64x2(low_last, high_last, 0x44);
            result[3] = _mm512_shuffle_i64x2(low_last, high_last, 0xEE);
        }
    }

    HAMTARGET_INLINE __m512i counts(const std::uint8_t* rows, int part, std::size_t n_rows) const {
        return _mm512_popcnt_epi64(differing(rows, part, n_rows));
    }

    // Add neighbours: sums of the first register in even lanes, sums of the second in odd ones.
    HAMTARGET_INLINE static __m512i pairs(__m512i first, __m512i second) {
        return _mm512_add_epi64(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    }

    HAMTARGET_INLINE __m512i distances(const std::uint8_t* rows, std::size_t n) const {
        if constexpr (words == 1) {
            return counts(rows, 0, n);
        } else if constexpr (words == 2) {
            const __m512i sums = pairs(counts(rows, 0, n), counts(rows, 1, n));  // of rows 0 4 1 5 2 6 3 7
            return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), sums);
        } else {
            const __m512i low = pairs(counts(rows, 0, n), counts(rows, 1, n));
            const __m512i high = pairs(counts(rows, 2, n), counts(rows, 3, n));
            const __m512i sums = _mm512_add_epi64(_mm512_shuffle_i64x2(low, high, 0x88),
                                                  _mm512_shuffle_i64x2(low, high, 0xDD));  // of rows 0 2 1 3 4 6 5 7
            return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7), sums);
        }
    }
};

template <int words>
HAMTARGET_INLINE void avx512_distances_by_eight(const std::uint8_t* query, Codes rows, Distance* result) {
    const auto eight = EightRows<words>::of(query);
    std::size_t i = 0;
    for (; i + 8 <= rows.n_rows; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(result + i),
                         _mm512_cvtepi64_epi16(eight.distances(rows.bytes + 8 * words * i, 8)));
    word_distances(query, rows.slice(i, rows.n_rows - i), result + i);
}

void avx512_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    switch (rows.n_bytes) {
        case 8: return avx512_distances_by_eight<1>(query, rows, result);
        case 16: return avx512_distances_by_eight<2>(query, rows, result);
        case 32: return avx512_distances_by_eight<4>(query, rows, result);
    }
    if (rows.n_bytes < 16) return word_distances(query, rows, result);
    // Whole registers, and a mask that keeps the bytes past the row out of the last.
    const std::size_t last = (rows.n_bytes - 1) / 64 * 64;
    const __mmask64 there = ~0ULL >> (64 - (rows.n_bytes - last));
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        const std::uint8_t* code = rows.row(i);
        __m512i counts = _mm512_popcnt_epi64(
            _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, code + last), _mm512_maskz_loadu_epi8(there, query + last)));
        for (std::size_t at = 0; at < last; at += 64)
            counts = _mm512_add_epi64(
                counts, _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(code + at), _mm512_loadu_si512(query + at))));
        result[i] = static_cast<Distance>(_mm512_reduce_add_epi64(counts));
    }
}

// Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
HAMTARGET_INLINE std::size_t avx512_keep(__mmask8 near, std::size_t i, __m512i distances_here,
                                         std::uint32_t* positions, Distance* distances) {
    const __m512i rows_here = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), broadcast(i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions),
                        _mm512_cvtepi64_epi32(_mm512_maskz_compress_epi64(near, rows_here)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(distances),
                     _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(near, distances_here)));
    return static_cast<std::size_t>(__builtin_popcount(near));
}

template <int words>
HAMTARGET_INLINE std::size_t avx512_within_by_eight(const std::uint8_t* query, Codes rows, Distance radius,
                                                    std::uint32_t* positions, Distance* distances) {
    const auto eight = EightRows<words>::of(query);
    const __m512i widest = broadcast(radius);
    std::size_t count = 0;
    // Hits are rare, and a branch for each would be mispredicted: first a byte says whether a group of rows has any,
    // then the groups that have some are looked at again.
    constexpr std::size_t kGroup = 32;
    constexpr int kFew = 4;  // hits of a group that are faster one by one
    const std::size_t n_groups = rows.n_rows / kGroup;
    std::uint8_t any[kBlockRows / kGroup];
    for (std::size_t group = 0; group < n_groups; ++group) {
        const std::uint8_t* bytes = rows.bytes + 8 * words * kGroup * group;
        __m512i here[4];
        for (int k = 0; k < 4; ++k) here[k] = eight.distances(bytes + 64 * words * k, 8);
        const __m512i nearest =
            _mm512_min_epu64(_mm512_min_epu64(here[0], here[1]), _mm512_min_epu64(here[2], here[3]));
        any[group] = _mm512_cmple_epu64_mask(nearest, widest);
    }
    for (std::size_t first = 0; first < n_groups; first += 64) {
        const __mmask64 there = ~0ULL >> (64 - smaller<std::size_t>(64, n_groups - first));
        const __m512i bytes = _mm512_maskz_loadu_epi8(there, any + first);
        for (std::uint64_t some = _mm512_test_epi8_mask(bytes, bytes); some; some &= some - 1) {
            const std::size_t row = kGroup * (first + static_cast<std::size_t>(__builtin_ctzll(some)));
            __m512i here[4];
            std::uint32_t near = 0;
            for (std::size_t k = 0; k < 4; ++k) {
                here[k] = eight.distances(rows.bytes + 8 * words * (row + 8 * k), 8);
                near |= static_cast<std::uint32_t>(_mm512_cmple_epu64_mask(here[k], widest)) << (8 * k);
            }
            if (__builtin_popcount(near) > kFew) {
                for (std::size_t k = 0; k < 4; ++k)
                    count += avx512_keep(static_cast<__mmask8>(near >> (8 * k)), row + 8 * k, here[k],
                                         positions + count, distances + count);
                continue;
            }
            for (; near; near &= near - 1) {
                const std::size_t found = row + static_cast<std::size_t>(__builtin_ctz(near));
                positions[count] = static_cast<std::uint32_t>(found);
                distances[count++] =
                    static_cast<Distance>(code_distance(query, rows.bytes + 8 * words * found, 8 * words));
            }
        }
    }
    for (std::size_t i = kGroup * n_groups; i < rows.n_rows; i += 8) {
        const std::size_t left = smaller<std::size_t>(8, rows.n_rows - i);
        const __m512i here = eight.distances(rows.bytes + 8 * words * i, left);
        const auto there = static_cast<__mmask8>((1u << left) - 1);
        count += avx512_keep(_mm512_mask_cmple_epu64_mask(there, here, widest), i, here, positions + count,
                             distances + count);
    }
    return count;
}

std::size_t avx512_within(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                          Distance* distances) {
    switch (rows.n_bytes) {
        case 8: return avx512_within_by_eight<1>(query, rows, radius, positions, distances);
        case 16: return avx512_within_by_eight<2>(query, rows, radius, positions, distances);
        case 32: return avx512_within_by_eight<4>(query, rows, radius, positions, distances);
        default: return within_by_distances<avx512_distances>(query, rows, radius, positions, distances);
    }
}

// Where the bytes of eight lanes come from in eight entries of excerpts, which lie in two registers: the first 8 bytes of
// an excerpt, the others, and the place.
struct ExcerptBytes {
    alignas(64) std::uint8_t words[64], tails[64], places[64];

    constexpr explicit ExcerptBytes(std::size_t n_bytes) : words{}, tails{}, places{} {
        for (std::size_t lane = 0; lane < 8; ++lane)
            for (std::size_t byte = 0; byte < 8; ++byte) {
                const std::size_t begin = lane * (n_bytes + 4) + byte;
                words[8 * lane + byte] = static_cast<std::uint8_t>(begin);
                tails[8 * lane + byte] = static_cast<std::uint8_t>(begin + 8);
                places[8 * lane + byte] = static_cast<std::uint8_t>(begin + n_bytes);
            }
    }
};
constexpr ExcerptBytes kExcerptBytes[] = {ExcerptBytes(0), ExcerptBytes(1), ExcerptBytes(2),  ExcerptBytes(3),  ExcerptBytes(4),
                                          ExcerptBytes(5), ExcerptBytes(6), ExcerptBytes(7),  ExcerptBytes(8),  ExcerptBytes(9),
                                          ExcerptBytes(10), ExcerptBytes(11), ExcerptBytes(12)};

// Take eight entries of excerpts apart.
struct EightExcerpts {
    __m512i word_bytes, tail_bytes, place_bytes;
    __mmask64 of_words, of_tails;  // bytes that excerpts have

    static constexpr std::size_t kMostBytes = 12;
    static constexpr __mmask64 kOfPlaces = 0x0F0F0F0F0F0F0F0F;

    HAMTARGET_INLINE static EightExcerpts of(std::size_t n_bytes) {
        const ExcerptBytes& from = kExcerptBytes[n_bytes];
        const auto first = [](std::size_t count) { return 0x0101010101010101ULL * ((1ULL << count) - 1); };
        return {_mm512_load_si512(from.words), _mm512_load_si512(from.tails), _mm512_load_si512(from.places),
                n_bytes >= 8 ? ~0ULL : first(n_bytes), n_bytes > 8 ? first(n_bytes - 8) : 0};
    }

    HAMTARGET_INLINE __m512i words(__m512i low, __m512i high) const {
        return _mm512_maskz_permutex2var_epi8(of_words, low, word_bytes, high);
    }
    HAMTARGET_INLINE __m512i tails(__m512i low, __m512i high) const {
        return _mm512_maskz_permutex2var_epi8(of_tails, low, tail_bytes, high);
    }
    HAMTARGET_INLINE __m256i places(__m512i low, __m512i high, __mmask8 which) const {
        const __m512i all = _mm512_maskz_permutex2var_epi8(kOfPlaces, low, place_bytes, high);
        return _mm512_cvtepi64_epi32(_mm512_maskz_compress_epi64(which, all));
    }
};

std::size_t avx512_near_excerpts(const std::uint8_t* wanted, std::size_t n_bytes, const std::uint8_t* entries,
                                 std::size_t count, Distance radius, std::uint32_t* places) {
    if (n_bytes > EightExcerpts::kMostBytes)
        return near_excerpts_one_by_one(wanted, n_bytes, entries, count, radius, places);
    const auto eight = EightExcerpts::of(n_bytes);
    std::uint64_t words = 0, tails = 0;
    std::memcpy(&words, wanted, smaller<std::size_t>(8, n_bytes));
    if (n_bytes > 8) std::memcpy(&tails, wanted + 8, n_bytes - 8);
    const __m512i wanted_words = broadcast(words), wanted_tails = broadcast(tails), widest = broadcast(radius);
    const std::size_t size = n_bytes + 4;
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; i += 8) {
        const std::size_t left = smaller<std::size_t>(8, count - i), bytes = left * size;
        const std::uint8_t* from = entries + i * size;
        __builtin_prefetch(from + kPrefetchedBytes);
        __builtin_prefetch(from + kPrefetchedBytes + 64);
        const __m512i low = _mm512_maskz_loadu_epi8(bytes >= 64 ? ~0ULL : (1ULL << bytes) - 1, from);
        const __mmask64 rest = bytes >= 128 ? ~0ULL : bytes > 64 ? (1ULL << (bytes - 64)) - 1 : 0;
        const __m512i high = _mm512_maskz_loadu_epi8(rest, from + 64);
        const __m512i apart =
            _mm512_add_epi64(_mm512_popcnt_epi64(_mm512_xor_si512(eight.words(low, high), wanted_words)),
                             _mm512_popcnt_epi64(_mm512_xor_si512(eight.tails(low, high), wanted_tails)));
        const auto there = static_cast<__mmask8>((1u << left) - 1);
        const __mmask8 near = _mm512_mask_cmple_epu64_mask(there, apart, widest);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(places + found), eight.places(low, high, near));
        found += static_cast<std::size_t>(__builtin_popcount(near));
    }
    return found;
}

// Asymmetric distances of eight codes of 8 bytes, given the bits that differ from the query. Both halves of all bytes
// are looked up at once, each byte of a code in its own 16 places of a table of 128.
struct EightAsymmetric {
    __m512i low[2], high[2];

    HAMTARGET_INLINE static EightAsymmetric of(const AsymmetricTables& tables) {
        return {{_mm512_load_si512(tables.low), _mm512_load_si512(tables.low + 64)},
                {_mm512_load_si512(tables.high), _mm512_load_si512(tables.high + 64)}};
    }

    HAMTARGET_INLINE __m512i operator()(__m512i differing) const {
        const __m512i half = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
        const __m512i position = _mm512_set1_epi64(0x7060504030201000);
        const __m512i lower = _mm512_or_si512(_mm512_and_si512(differing, half), position);
        const __m512i upper = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi64(differing, 4), half), position);
        return _mm512_add_epi64(_mm512_sad_epu8(_mm512_permutex2var_epi8(low[0], lower, low[1]), zero),
                                _mm512_sad_epu8(_mm512_permutex2var_epi8(high[0], upper, high[1]), zero));
    }
};

// Compares a group of rows of a bucket with the query: two halves of eight rows, or eight rows of long codes. (Buckets
// of long codes are small, and an empty half would take as long as a full one.)
template <int words>
struct Group {
    static constexpr std::size_t kHalves = words == 4 ? 1 : 2;
    static constexpr std::size_t kRows = 8 * kHalves;

    __m512i differing[kHalves][words];
    __m512i distances[kHalves];
    __mmask8 found[kHalves];

    // Find the rows within the radius among the first `n_rows`.
    HAMTARGET_INLINE void read(const EightRows<words>& eight, const std::uint8_t* codes, std::size_t n_rows,
                               __m512i radius) {
        for (std::size_t half = 0; half < kHalves; ++half) {
            const std::size_t left = n_rows > 8 * half ? smaller<std::size_t>(8, n_rows - 8 * half) : 0;
            eight.differing_words(codes + 64 * words * half, left, differing[half]);
            distances[half] = _mm512_popcnt_epi64(differing[half][0]);
            for (int w = 1; w < words; ++w)
                distances[half] = _mm512_add_epi64(distances[half], _mm512_popcnt_epi64(differing[half][w]));
            const auto there = static_cast<__mmask8>((1u << left) - 1);
            found[half] = _mm512_mask_cmple_epu64_mask(there, distances[half], radius);
        }
    }

    // Tell which of the rows found have a substring that differs from the query's. It spans at most two words.
    HAMTARGET_INLINE __mmask8 differs(const KeyBits& key, std::size_t half) const {
        const std::size_t word = words == 1 ? 0 : key.word();
        __mmask8 rows = _mm512_mask_test_epi64_mask(found[half], differing[half][word], broadcast(key.bits()));
        if constexpr (words > 1)
            if (key.bits_of_next())
                rows |= _mm512_mask_test_epi64_mask(found[half], differing[half][word + 1],
                                                    broadcast(key.bits_of_next()));
        return rows;
    }

    HAMTARGET_INLINE void keep_first(const OwnBuckets& buckets, std::size_t table) {
        for (std::size_t j = 0; j < table; ++j)
            for (std::size_t half = 0; half < kHalves; ++half) found[half] = differs(buckets.tables[j].key, half);
        for (std::size_t half = 0; half < kHalves; ++half)
            found[half] &= static_cast<__mmask8>(~differs(buckets.tables[table].key, half));
    }

    HAMTARGET_INLINE bool has_any() const {
        if constexpr (kHalves == 1) return found[0];
        return found[0] | found[1];
    }

    // Return the rows at one distance.
    HAMTARGET_INLINE __mmask16 at(std::size_t distance) const {
        const __mmask8 low = _mm512_mask_cmpeq_epi64_mask(found[0], distances[0], broadcast(distance));
        if constexpr (kHalves == 1) return low;
        return _mm512_kunpackb(_mm512_mask_cmpeq_epi64_mask(found[1], distances[1], broadcast(distance)), low);
    }
};

// Append rows to a list and move its end.
HAMTARGET_INLINE void avx512_append(__mmask16 which, __m512i rows, RowNumber*& end) {
    // Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
    _mm512_storeu_si512(end, _mm512_maskz_compress_epi32(which, rows));
    end += __builtin_popcount(which);
}

// Append to one list after another without a loop: then the compiler keeps the ends in registers.
template <int words, std::size_t... each>
HAMTARGET_INLINE void avx512_append_each(std::index_sequence<each...>, const Group<words>& group, __m512i rows,
                                         RowNumber** ends) {
    (avx512_append(group.at(each), rows, ends[each]), ...);
}
template <std::size_t... each>
HAMTARGET_INLINE void end_runs(std::index_sequence<each...>, const RowListsView& lists, std::size_t run,
                               RowNumber** ends) {
    (lists.end_run(run, each, ends[each]), ...);
}

// Fill all lists at once, a group of rows at a time, without a branch for a hit. If the compiler knows the number of
// lists, their ends stay in registers; n_lists 0 stands for any number.
template <int words, std::size_t n_lists>
void avx512_fill_lists(const OwnBuckets& buckets, const RowListsView& lists) {
    const auto eight = EightRows<words>::of(buckets.query);
    const __m512i widest = broadcast(buckets.radius);
    const std::size_t n_ends = n_lists ? n_lists : lists.n_lists;
    constexpr auto known = std::make_index_sequence<n_lists>();
    RowNumber* ends[n_lists ? n_lists : kMostLists];
#pragma GCC unroll 4
    for (std::size_t d = 0; d < n_ends; ++d) ends[d] = lists.list(d);
    for (std::size_t table = 0; table < buckets.n_tables; ++table) {
        buckets.fetch_later(table);
        const std::uint8_t* codes = buckets.codes(table).bytes;
        const RowNumber* rows = buckets.rows(table);
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

template <int words>
void avx512_fill_lists(const OwnBuckets& buckets, const RowListsView& lists) {
    switch (lists.n_lists) {
        case 1: return avx512_fill_lists<words, 1>(buckets, lists);
        case 2: return avx512_fill_lists<words, 2>(buckets, lists);
        case 3: return avx512_fill_lists<words, 3>(buckets, lists);
        case 4: return avx512_fill_lists<words, 4>(buckets, lists);
        default: return avx512_fill_lists<words, 0>(buckets, lists);
    }
}

void avx512_read_buckets(const OwnBuckets& buckets, KernelRoom& room, const RowListsView& lists) {
    switch (buckets.n_bytes) {
        case 8: return avx512_fill_lists<1>(buckets, lists);
        case 16: return avx512_fill_lists<2>(buckets, lists);
        case 32: return avx512_fill_lists<4>(buckets, lists);
        default: return read_buckets_by_within<avx512_within>(buckets, room, lists);
    }
}

// Load sixteen rows, which networks of comparisons sort (Batcher 1968). Lanes past the last row get the largest number,
// which no row has.
HAMTARGET_INLINE __m512i avx512_load_rows(const RowNumber* from, const RowNumber* end) {
    const std::ptrdiff_t left = end - from;
    const auto there = static_cast<__mmask16>(left >= 16 ? 0xFFFF : left <= 0 ? 0 : (1u << left) - 1);
    return _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), there, from);
}

// Take the smaller of each lane and its partner, or the larger where `larger` has a bit.
HAMTARGET_INLINE __m512i avx512_exchange(__m512i rows, __m512i partners, __mmask16 larger) {
    return _mm512_mask_max_epu32(_mm512_min_epu32(rows, partners), larger, rows, partners);
}

HAMTARGET_INLINE __m512i avx512_reversed(__m512i rows) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), rows);
}

// Compare lanes that are 1, 2, 4 or 8 apart.
HAMTARGET_INLINE __m512i avx512_exchange_1(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0xB1)), 0xAAAA);
}
HAMTARGET_INLINE __m512i avx512_exchange_2(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0x4E)), 0xCCCC);
}
HAMTARGET_INLINE __m512i avx512_exchange_4(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_i64x2(rows, rows, 0xB1), 0xF0F0);
}
HAMTARGET_INLINE __m512i avx512_exchange_8(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_i64x2(rows, rows, 0x4E), 0xFF00);
}

// Sort rows that rise and then fall, or fall and then rise.
HAMTARGET_INLINE __m512i avx512_sort_bitonic(__m512i rows) {
    return avx512_exchange_1(avx512_exchange_2(avx512_exchange_4(avx512_exchange_8(rows))));
}

HAMTARGET_INLINE __m512i avx512_sorted(__m512i rows) {
    rows = avx512_exchange_1(rows);
    // Sorted halves are merged by comparing the first with the last, the second with the last but one, and so on.
    rows = avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0x1B)), 0xCCCC);
    rows = avx512_exchange_1(rows);
    const __m512i eights = _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    rows = avx512_exchange(rows, _mm512_permutexvar_epi32(eights, rows), 0xF0F0);
    rows = avx512_exchange_1(avx512_exchange_2(rows));
    rows = avx512_exchange(rows, avx512_reversed(rows), 0xFF00);
    return avx512_exchange_1(avx512_exchange_2(avx512_exchange_4(rows)));
}

// Do what merge_two does, sixteen rows at a time. Writes up to 15 elements past the last.
void avx512_merge_rows(const RowNumber* left, const RowNumber* middle, const RowNumber* end, RowNumber* to) {
    const RowNumber* right = middle;
    if (left == middle || right == end) {
        while (left < end) *to++ = *left++;
        return;
    }
    constexpr RowNumber kNone{0xFFFFFFFF};
    RowNumber* const last = to + (end - left);
    __m512i high = avx512_load_rows(left, middle), next = avx512_load_rows(right, end);
    left += 16;
    right += 16;
    for (;; to += 16) {
        next = avx512_reversed(next);
        _mm512_storeu_si512(to, avx512_sort_bitonic(_mm512_min_epu32(high, next)));
        if (last - to <= 16) return;
        high = avx512_sort_bitonic(_mm512_max_epu32(high, next));
        // The run with the smaller head goes on: what is in the register then comes before all of the other's rest.
        const bool second = (right < end ? *right : kNone) < (left < middle ? *left : kNone);
        next = second ? avx512_load_rows(right, end) : avx512_load_rows(left, middle);
        right += second ? 16 : 0;
        left += second ? 0 : 16;
    }
}

// Sort at most 32 rows in any order.
void avx512_sort_rows(RowNumber* rows, std::size_t count) {
    __m512i low = avx512_sorted(avx512_load_rows(rows, rows + count));
    if (count > 16) {
        const __m512i high = avx512_reversed(avx512_sorted(avx512_load_rows(rows + 16, rows + count)));
        _mm512_storeu_si512(rows + 16, avx512_sort_bitonic(_mm512_max_epu32(low, high)));
        low = avx512_sort_bitonic(_mm512_min_epu32(low, high));
    }
    _mm512_storeu_si512(rows, low);
}

// Read and write whole registers, up to 31 elements past the last.
void avx512_write_rows(const RowNumber* rows, std::size_t count, Id base, Distance distance, Id* ids,
                       Distance* distances) {
    const __m512i first = _mm512_set1_epi64(base);
    for (std::size_t i = 0; i < count; i += 8) {
        const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + i));
        _mm512_storeu_si512(ids + i, _mm512_add_epi64(_mm512_cvtepu32_epi64(numbers), first));
    }
    const __m512i same = _mm512_set1_epi16(static_cast<short>(distance));
    for (std::size_t i = 0; i < count; i += 32) _mm512_storeu_si512(distances + i, same);
}

template <int words, bool asymmetric>
std::size_t avx512_filter(const RowFilter& filter, const RowRun* runs, std::size_t n_runs, Hit* hits,
                          Asymmetric* distances) {
    const auto eight = EightRows<words>::of(filter.query);
    const __m512i widest = _mm512_set1_epi64(filter.radius);
    EightAsymmetric eight_asymmetric;
    if constexpr (asymmetric && words == 1) eight_asymmetric = EightAsymmetric::of(*filter.asymmetric);
    std::size_t count = 0;
    for (std::size_t r = 0; r < smaller(kRunsAhead, n_runs); ++r) prefetch_run(runs, n_runs, r, 8 * words);
    for (std::size_t r = 0; r < n_runs; ++r) {
        const RowRun& run = runs[r];
        prefetch_run(runs, n_runs, r + kRunsAhead, 8 * words);
        const __m512i stamp = _mm512_set1_epi64(static_cast<long long>(hit_of(0, run.part, RowNumber{0})));
        for (std::size_t i = 0; i < run.count; i += 8) {
            const std::size_t left = smaller<std::size_t>(8, run.count - i);
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
                    distances[at++] = (*filter.asymmetric)(bytes + 8 * words * __builtin_ctz(rest));
            }
            count += static_cast<std::size_t>(__builtin_popcount(found));
        }
    }
    return count;
}

template <int words>
std::size_t avx512_filter(const RowFilter& filter, const RowRun* runs, std::size_t n_runs, Hit* hits,
                          Asymmetric* distances) {
    return filter.asymmetric ? avx512_filter<words, true>(filter, runs, n_runs, hits, distances)
                             : avx512_filter<words, false>(filter, runs, n_runs, hits, distances);
}

std::size_t avx512_filter_rows(const RowFilter& filter, const RowRun* runs, std::size_t n_runs, KernelRoom& room,
                               Hit* hits, Asymmetric* distances) {
    switch (filter.n_bytes) {
        case 8: return avx512_filter<1>(filter, runs, n_runs, hits, distances);
        case 16: return avx512_filter<2>(filter, runs, n_runs, hits, distances);
        case 32: return avx512_filter<4>(filter, runs, n_runs, hits, distances);
        default: return filter_rows_by_within<avx512_within>(filter, runs, n_runs, room, hits, distances);
    }
}

// Compare sixteen distances at a time.
std::size_t avx512_between(const Asymmetric* distances, std::size_t count, Asymmetric first, Asymmetric last,
                           std::uint32_t* positions) {
    const __m512i lowest = _mm512_set1_epi32(raw(first)), width = _mm512_set1_epi32(raw(last) - raw(first));
    __m512i here = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::size_t found = 0, i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(distances + i));
        const __m512i above = _mm512_sub_epi32(_mm512_cvtepu16_epi32(narrow), lowest);
        const __mmask16 inside = _mm512_cmple_epu32_mask(above, width);
        _mm512_storeu_si512(positions + found, _mm512_maskz_compress_epi32(inside, here));
        found += static_cast<std::size_t>(__builtin_popcount(inside));
        here = _mm512_add_epi32(here, _mm512_set1_epi32(16));
    }
    for (; i < count; ++i) {
        positions[found] = static_cast<std::uint32_t>(i);
        found += distances[i] >= first && distances[i] <= last;
    }
    return found;
}

}  // namespace

extern const CodeKernel kAvx512Codes;
constinit const CodeKernel kAvx512Codes = {.name = "avx512",
                                           .distances = avx512_distances,
                                           .within = avx512_within,
                                           .near_excerpts = avx512_near_excerpts,
                                           .within_places = within_places_one_by_one,
                                           .read_buckets = avx512_read_buckets,
                                           .most_sorted = 32,
                                           .sort_rows = avx512_sort_rows,
                                           .merge_rows = avx512_merge_rows,
                                           .write_rows = avx512_write_rows,
                                           .filter_rows = avx512_filter_rows,
                                           .between = avx512_between};

}  // namespace hamtarget

#endif
