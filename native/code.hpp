// Packed codes: Hamming distances and linear scans, by the widest instructions of the CPU at hand.
//
// A code is a row of n_bytes bytes, 1 to 128 (8 to 1,024 bits); rows follow one another without gaps.
// Callers check their input: nothing here looks at a length or a pointer twice.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hamtarget {

using Distance = std::uint16_t;

inline constexpr std::size_t kMaxCodeBytes = 128;

// Packed codes that somebody else owns.
struct Codes {
    const std::uint8_t* bytes;
    std::size_t n_rows;
    std::size_t n_bytes;

    const std::uint8_t* row(std::size_t index) const { return bytes + index * n_bytes; }
    Codes slice(std::size_t start, std::size_t count) const { return {row(start), count, n_bytes}; }
};

// A block of rows and its results stay in a 32 KiB first-level cache while every query of a batch reads them.
inline constexpr std::size_t kBlockBytes = 16 * 1024;
inline constexpr std::size_t kBlockRows = 2048;
// Kernels store whole registers, whose end may lie past the last result.
inline constexpr std::size_t kKernelSlack = 16;

// One way to compute distances. All of them give the same results.
struct Kernel {
    const char* name;
    bool is_avx512;

    // Distance of `query` to each row.
    void (*distances)(const std::uint8_t* query, Codes rows, Distance* result);

    // Number of rows within `radius`, whose positions and distances are written in the order of the rows.
    // Takes at most kBlockRows rows; both results have room for all of them and kKernelSlack more.
    std::size_t (*within)(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                          Distance* distances);
};

// What is always inlined is compiled once for each kernel, with the instructions of that kernel.
#define HAMTARGET_INLINE [[gnu::always_inline]] inline

// Has memory fetched that will be read soon; of much, the first lines: the hardware follows.
// Inlined always: GCC 12 takes a function that only prefetches for one without effect, and drops the call.
HAMTARGET_INLINE void prefetch_bytes(const void* from, std::size_t n_bytes) {
    constexpr std::size_t kLine = 64, kLines = 12;
    const char* begin = static_cast<const char*>(from);
    const char* end = begin + std::min(n_bytes, kLine * kLines);
    for (const char* at = begin; at < end; at += kLine) __builtin_prefetch(at);
    __builtin_prefetch(end - 1);
}

namespace kernels {

template <class Word>
HAMTARGET_INLINE unsigned word_distance(const std::uint8_t* left, const std::uint8_t* right) {
    Word a, b;
    std::memcpy(&a, left, sizeof a);
    std::memcpy(&b, right, sizeof b);
    return static_cast<unsigned>(std::popcount(static_cast<Word>(a ^ b)));
}

HAMTARGET_INLINE unsigned code_distance(const std::uint8_t* left, const std::uint8_t* right, std::size_t n_bytes) {
    unsigned distance = 0;
    std::size_t at = 0;
    for (; at + 8 <= n_bytes; at += 8) distance += word_distance<std::uint64_t>(left + at, right + at);
    if (n_bytes & 4) distance += word_distance<std::uint32_t>(left + at, right + at), at += 4;
    if (n_bytes & 2) distance += word_distance<std::uint16_t>(left + at, right + at), at += 2;
    if (n_bytes & 1) distance += word_distance<std::uint8_t>(left + at, right + at);
    return distance;
}

HAMTARGET_INLINE void word_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    const auto each_row = [&](std::size_t n_bytes) __attribute__((always_inline)) {
        for (std::size_t i = 0; i < rows.n_rows; ++i)
            result[i] = static_cast<Distance>(code_distance(query, rows.bytes + i * n_bytes, n_bytes));
    };
    // A length that the compiler knows needs no loop over words.
    switch (rows.n_bytes) {
        case 4: return each_row(4);
        case 8: return each_row(8);
        case 16: return each_row(16);
        case 32: return each_row(32);
        default: return each_row(rows.n_bytes);
    }
}

// `within` of the kernels that have nothing better: all distances, then those that are small enough.
template <void (*distances_to)(const std::uint8_t*, Codes, Distance*)>
std::size_t within_by_distances(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                                Distance* distances) {
    // Hits are rare: one test passes over a group of rows that has none.
    constexpr std::size_t kGroup = 16;
    Distance all[kBlockRows];
    distances_to(query, rows, all);
    std::size_t count = 0;
    for (std::size_t start = 0; start < rows.n_rows; start += kGroup) {
        const std::size_t stop = std::min(start + kGroup, rows.n_rows);
        if (stop - start == kGroup) {
            std::uint16_t any = 0;
            for (std::size_t i = start; i < start + kGroup; ++i) any |= static_cast<std::uint16_t>(all[i] <= radius);
            if (!any) continue;
        }
        for (std::size_t i = start; i < stop; ++i) {
            positions[count] = static_cast<std::uint32_t>(i);
            distances[count] = all[i];
            count += all[i] <= radius;
        }
    }
    return count;
}

inline void portable_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    word_distances(query, rows, result);
}

#if defined(__x86_64__)

#define HAMTARGET_POPCNT gnu::target("popcnt")
#define HAMTARGET_AVX2 gnu::target("avx2,popcnt")
#define HAMTARGET_AVX512 gnu::target("avx512f,avx512bw,avx512vpopcntdq,popcnt")

[[HAMTARGET_POPCNT]] inline void popcnt_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    word_distances(query, rows, result);
}

// Bits set in each 64-bit lane: two table look-ups a byte (Mula, Kurz, Lemire 2018), then sums of 8 bytes.
[[HAMTARGET_AVX2]] HAMTARGET_INLINE __m256i avx2_popcount(__m256i lanes) {
    const __m256i nibble_counts =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i low_nibbles = _mm256_set1_epi8(15);
    const __m256i low = _mm256_and_si256(lanes, low_nibbles);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(lanes, 4), low_nibbles);
    const __m256i bytes =
        _mm256_add_epi8(_mm256_shuffle_epi8(nibble_counts, low), _mm256_shuffle_epi8(nibble_counts, high));
    return _mm256_sad_epu8(bytes, _mm256_setzero_si256());
}

[[HAMTARGET_AVX2]] inline void avx2_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    if (rows.n_bytes == 8) {
        std::uint64_t word;
        std::memcpy(&word, query, sizeof word);
        const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(word));
        const __m256i even_words = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
        std::size_t i = 0;
        for (; i + 4 <= rows.n_rows; i += 4) {
            const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows.row(i)));
            const __m256i counts = avx2_popcount(_mm256_xor_si256(codes, wanted));
            const __m128i narrow = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(counts, even_words));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(result + i), _mm_packus_epi32(narrow, narrow));
        }
        word_distances(query, rows.slice(i, rows.n_rows - i), result + i);
    } else if (rows.n_bytes < 64) {
        word_distances(query, rows, result);
    } else {
        for (std::size_t i = 0; i < rows.n_rows; ++i) {
            const std::uint8_t* code = rows.row(i);
            __m256i sums = _mm256_setzero_si256();
            std::size_t at = 0;
            for (; at + 32 <= rows.n_bytes; at += 32) {
                const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query + at));
                const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(code + at));
                sums = _mm256_add_epi64(sums, avx2_popcount(_mm256_xor_si256(left, right)));
            }
            const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
            const auto sum = _mm_extract_epi64(halves, 0) + _mm_extract_epi64(halves, 1);
            result[i] = static_cast<Distance>(sum + code_distance(query + at, code + at, rows.n_bytes - at));
        }
    }
}

// Distances of one query to eight rows of 1, 2 or 4 words, which lie one after another.
template <int words>
struct EightRows {
    static_assert(words == 1 || words == 2 || words == 4);
    __m512i wanted;  // the query's words, again and again

    [[HAMTARGET_AVX512]] HAMTARGET_INLINE static EightRows of(const std::uint8_t* query) {
        std::uint64_t repeated[8];
        for (int i = 0; i < 8; ++i) std::memcpy(repeated + i, query + 8 * (i % words), 8);
        return {_mm512_loadu_si512(repeated)};
    }

    // Bits that differ in 64 bytes of the rows, of which only the first `n_rows` rows are there.
    [[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i differing(const std::uint8_t* rows, int part,
                                                            std::size_t n_rows) const {
        const int left = static_cast<int>(n_rows) * words - 8 * part;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xFF : left <= 0 ? 0 : (1 << left) - 1);
        return _mm512_xor_si512(_mm512_maskz_loadu_epi64(lanes, rows + 64 * part), wanted);
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
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i rows_here = _mm512_add_epi64(lanes, _mm512_set1_epi64(static_cast<long long>(i)));
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
    const __m512i widest = _mm512_set1_epi64(radius);
    std::size_t count = 0, i = 0;
    // Hits are rare: one test passes over four times eight rows.
    for (; i + 32 <= rows.n_rows; i += 32) {
        __m512i here[4];
        for (int k = 0; k < 4; ++k) here[k] = eight.distances(rows.bytes + 8 * words * (i + 8 * k), 8);
        const __m512i nearest =
            _mm512_min_epu64(_mm512_min_epu64(here[0], here[1]), _mm512_min_epu64(here[2], here[3]));
        if (!_mm512_cmple_epu64_mask(nearest, widest)) continue;
        for (int k = 0; k < 4; ++k)
            count += avx512_keep(_mm512_cmple_epu64_mask(here[k], widest), i + 8 * k, here[k], positions + count,
                                 distances + count);
    }
    for (; i < rows.n_rows; i += 8) {
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

#elif defined(__aarch64__)

inline void neon_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        const std::uint8_t* code = rows.row(i);
        unsigned distance = 0;
        std::size_t at = 0;
        for (; at + 16 <= rows.n_bytes; at += 16)
            distance += vaddlvq_u8(vcntq_u8(veorq_u8(vld1q_u8(query + at), vld1q_u8(code + at))));
        result[i] = static_cast<Distance>(distance + code_distance(query + at, code + at, rows.n_bytes - at));
    }
}

#endif

}  // namespace kernels

// The kernels that this CPU can run, fastest first; the last one runs everywhere.
inline std::span<const Kernel> supported_kernels() {
    static const std::vector<Kernel> supported = [] {
        using namespace kernels;
        std::vector<Kernel> found;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vpopcntdq"))
            found.push_back({"avx512", true, avx512_distances, avx512_within});
        if (__builtin_cpu_supports("avx2"))
            found.push_back({"avx2", false, avx2_distances, within_by_distances<avx2_distances>});
        if (__builtin_cpu_supports("popcnt"))
            found.push_back({"popcnt", false, popcnt_distances, within_by_distances<popcnt_distances>});
#elif defined(__aarch64__)
        found.push_back({"neon", false, neon_distances, within_by_distances<neon_distances>});
#endif
        found.push_back({"portable", false, portable_distances, within_by_distances<portable_distances>});
        return found;
    }();
    return supported;
}

inline const Kernel& best_kernel() { return supported_kernels().front(); }

// The kernel of that name. Throws std::invalid_argument where this CPU has none.
inline const Kernel& kernel_named(std::string_view name) {
    for (const Kernel& kernel : supported_kernels())
        if (kernel.name == name) return kernel;
    throw std::invalid_argument("kernel is '" + std::string(name) + "'; this CPU does not support it");
}

}  // namespace hamtarget
