// Hamming distances by AVX-512 with VPOPCNTDQ: eight words at a time.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "code.hpp"

#define HAMTARGET_AVX512 gnu::target("avx512f,avx512bw,avx512vl,avx512vpopcntdq,popcnt")

namespace hamtarget::kernels {

[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i broadcast(std::uint64_t number) {
    return _mm512_set1_epi64(static_cast<long long>(number));
}

// Eight rows of 1, 2 or 4 words, which lie one after another, against one query.
template <int words>
struct EightRows {
    static_assert(words == 1 || words == 2 || words == 4);
    __m512i wanted;  // the query's words, again and again

    [[HAMTARGET_AVX512]] HAMTARGET_INLINE static EightRows of(const std::uint8_t* query) {
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

    // Bits that differ in 64 bytes of the rows, of which only the first `n_rows` rows are there.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i differing(const std::uint8_t* rows, int part,
                                                            std::size_t n_rows) const {
        const int left = static_cast<int>(n_rows) * words - 8 * part;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xFF : left <= 0 ? 0 : (1 << left) - 1);
        return _mm512_xor_si512(_mm512_maskz_loadu_epi64(lanes, rows + 64 * part), wanted);
    }

    // The same by word: result[w] has those of word w of each row.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE void differing_words(const std::uint8_t* rows, std::size_t n,
                                                               __m512i* result) const {
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

    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i counts(const std::uint8_t* rows, int part, std::size_t n_rows) const {
        return _mm512_popcnt_epi64(differing(rows, part, n_rows));
    }

    // Sums of neighbours: those of the first register in even lanes, those of the second in odd ones.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE static __m512i pairs(__m512i first, __m512i second) {
        return _mm512_add_epi64(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    }

    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i distances(const std::uint8_t* rows, std::size_t n) const {
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
[[HAMTARGET_AVX512]] HAMTARGET_INLINE void avx512_distances_by_eight(const std::uint8_t* query, Codes rows,
                                                                     Distance* result) {
    const auto eight = EightRows<words>::of(query);
    std::size_t i = 0;
    for (; i + 8 <= rows.n_rows; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(result + i),
                         _mm512_cvtepi64_epi16(eight.distances(rows.bytes + 8 * words * i, 8)));
    word_distances(query, rows.slice(i, rows.n_rows - i), result + i);
}

[[HAMTARGET_AVX512]] inline void avx512_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    switch (rows.n_bytes) {
        case 8: return avx512_distances_by_eight<1>(query, rows, result);
        case 16: return avx512_distances_by_eight<2>(query, rows, result);
        case 32: return avx512_distances_by_eight<4>(query, rows, result);
    }
    if (rows.n_bytes < 16) return word_distances(query, rows, result);
    // 128 bytes are two registers; masks keep the bytes past a shorter row out.
    const auto mask_of = [](std::size_t n) -> __mmask64 { return n >= 64 ? ~0ULL : (1ULL << n) - 1; };
    const __mmask64 first = mask_of(rows.n_bytes);
    const __mmask64 second = rows.n_bytes > 64 ? mask_of(rows.n_bytes - 64) : 0;
    const __m512i wanted_first = _mm512_maskz_loadu_epi8(first, query);
    const __m512i wanted_second = second ? _mm512_maskz_loadu_epi8(second, query + 64) : _mm512_setzero_si512();
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        const std::uint8_t* code = rows.row(i);
        __m512i counts = _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_maskz_loadu_epi8(first, code), wanted_first));
        if (second) {
            const __m512i codes = _mm512_maskz_loadu_epi8(second, code + 64);
            counts = _mm512_add_epi64(counts, _mm512_popcnt_epi64(_mm512_xor_si512(codes, wanted_second)));
        }
        result[i] = static_cast<Distance>(_mm512_reduce_add_epi64(counts));
    }
}

// Compressing a register and storing all of it is fast on every CPU; compressing into memory is not (Zen 4).
[[HAMTARGET_AVX512]] HAMTARGET_INLINE std::size_t avx512_keep(__mmask8 near, std::size_t i, __m512i distances_here,
                                                              std::uint32_t* positions, Distance* distances) {
    const __m512i rows_here = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), broadcast(i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions),
                        _mm512_cvtepi64_epi32(_mm512_maskz_compress_epi64(near, rows_here)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(distances),
                     _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(near, distances_here)));
    return static_cast<std::size_t>(std::popcount(static_cast<unsigned>(near)));
}

template <int words>
[[HAMTARGET_AVX512]] HAMTARGET_INLINE std::size_t avx512_within_by_eight(const std::uint8_t* query, Codes rows,
                                                                         Distance radius, std::uint32_t* positions,
                                                                         Distance* distances) {
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
        const __mmask64 there = ~0ULL >> (64 - std::min<std::size_t>(64, n_groups - first));
        const __m512i bytes = _mm512_maskz_loadu_epi8(there, any + first);
        for (std::uint64_t some = _mm512_test_epi8_mask(bytes, bytes); some; some &= some - 1) {
            const std::size_t row = kGroup * (first + static_cast<std::size_t>(std::countr_zero(some)));
            __m512i here[4];
            std::uint32_t near = 0;
            for (std::size_t k = 0; k < 4; ++k) {
                here[k] = eight.distances(rows.bytes + 8 * words * (row + 8 * k), 8);
                near |= static_cast<std::uint32_t>(_mm512_cmple_epu64_mask(here[k], widest)) << (8 * k);
            }
            if (std::popcount(near) > kFew) {
                for (std::size_t k = 0; k < 4; ++k)
                    count += avx512_keep(static_cast<__mmask8>(near >> (8 * k)), row + 8 * k, here[k],
                                         positions + count, distances + count);
                continue;
            }
            for (; near; near &= near - 1) {
                const std::size_t found = row + static_cast<std::size_t>(std::countr_zero(near));
                positions[count] = static_cast<std::uint32_t>(found);
                distances[count++] =
                    static_cast<Distance>(code_distance(query, rows.bytes + 8 * words * found, 8 * words));
            }
        }
    }
    for (std::size_t i = kGroup * n_groups; i < rows.n_rows; i += 8) {
        const std::size_t left = std::min<std::size_t>(8, rows.n_rows - i);
        const __m512i here = eight.distances(rows.bytes + 8 * words * i, left);
        const auto there = static_cast<__mmask8>((1u << left) - 1);
        count += avx512_keep(_mm512_mask_cmple_epu64_mask(there, here, widest), i, here, positions + count,
                             distances + count);
    }
    return count;
}

[[HAMTARGET_AVX512]] inline std::size_t avx512_within(const std::uint8_t* query, Codes rows, Distance radius,
                                                      std::uint32_t* positions, Distance* distances) {
    switch (rows.n_bytes) {
        case 8: return avx512_within_by_eight<1>(query, rows, radius, positions, distances);
        case 16: return avx512_within_by_eight<2>(query, rows, radius, positions, distances);
        case 32: return avx512_within_by_eight<4>(query, rows, radius, positions, distances);
        default: return within_by_distances<avx512_distances>(query, rows, radius, positions, distances);
    }
}

}  // namespace hamtarget::kernels

#endif
