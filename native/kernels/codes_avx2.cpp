// Work on codes by AVX2, which x86 CPUs have since 2013.
#include "code_loops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

namespace hamtarget {

namespace {

// Count the bits set in each 64-bit lane: two table look-ups a byte (Mula, Kurz, Lemire 2018), then sums of 8 bytes.
HAMTARGET_INLINE __m256i avx2_popcount(__m256i lanes) {
    const __m256i nibble_counts =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i low_nibbles = _mm256_set1_epi8(15);
    const __m256i low = _mm256_and_si256(lanes, low_nibbles);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(lanes, 4), low_nibbles);
    const __m256i bytes =
        _mm256_add_epi8(_mm256_shuffle_epi8(nibble_counts, low), _mm256_shuffle_epi8(nibble_counts, high));
    return _mm256_sad_epu8(bytes, _mm256_setzero_si256());
}

void avx2_distances(const std::uint8_t* query, Codes rows, Distance* result) {
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

}  // namespace

extern const CodeKernel kAvx2Codes;
constinit const CodeKernel kAvx2Codes = code_kernel_by_distances<avx2_distances>("avx2");

}  // namespace hamtarget

#endif
