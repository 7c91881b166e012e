// Sums over embeddings by AVX-512, and over int8 by VNNI: x86 servers since 2019.
#include "embedding_loops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

namespace hamtarget {

namespace {

// Sum up the lanes of each of four registers.
HAMTARGET_INLINE __m128i four_sums(const __m512i* lanes) {
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(lanes[0], lanes[1]),
                                           _mm512_unpackhi_epi32(lanes[0], lanes[1]));
    const __m512i second = _mm512_add_epi32(_mm512_unpacklo_epi32(lanes[2], lanes[3]),
                                            _mm512_unpackhi_epi32(lanes[2], lanes[3]));
    const __m512i four = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// The instruction vpdpbusd multiplies numbers of which one has no sign. So 128 is added to the elements of rows, and
// 128 times the other side is taken away again.
struct Products8 {
    HAMTARGET_INLINE static __m512i add(__m512i sums, __m512i query, __m512i row) {
        const __m512i above = _mm512_set1_epi8(-128);
        const __m512i excess = _mm512_dpbusd_epi32(_mm512_setzero_si512(), above, query);
        return _mm512_sub_epi32(_mm512_dpbusd_epi32(sums, _mm512_xor_si512(row, above), query), excess);
    }
};

// Differences of int8 take nine bits; without their signs, eight.
struct Squares8 {
    HAMTARGET_INLINE static __m512i add(__m512i sums, __m512i query, __m512i row) {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i apart = _mm512_sub_epi8(_mm512_max_epi8(query, row), _mm512_min_epi8(query, row));
        const __m512i low = _mm512_unpacklo_epi8(apart, zero), high = _mm512_unpackhi_epi8(apart, zero);
        return _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sums, low, low), high, high);
    }
};

// Take four rows at a time; past the last one, the last one again.
template <class Term, bool own>
void vnni_sums8(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows, std::size_t n,
                std::int32_t* sums) {
    for (std::size_t start = 0; start < n_rows; start += 4) {
        const std::int8_t* four[4];
        for (std::size_t k = 0; k < 4; ++k) four[k] = rows[smaller(start + k, n_rows - 1)];
        __m512i lanes[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                            _mm512_setzero_si512()};
        for (std::size_t i = 0; i < n; i += 64) {
            const __mmask64 there = n - i >= 64 ? ~0ULL : (1ULL << (n - i)) - 1;
            const __m512i wanted = own ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8(there, query + i);
            for (std::size_t k = 0; k < 4; ++k) {
                const __m512i row = _mm512_maskz_loadu_epi8(there, four[k] + i);
                lanes[k] = Term::add(lanes[k], own ? row : wanted, row);
            }
        }
        std::int32_t results[4];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(results), four_sums(lanes));
        for (std::size_t k = 0; k < smaller<std::size_t>(4, n_rows - start); ++k) sums[start + k] = results[k];
    }
}

}  // namespace

extern const EmbeddingKernel kVnniEmbeddings;
constinit const EmbeddingKernel kVnniEmbeddings = {.name = "avx512vnni",
                                                   .dot = dot,
                                                   .squares = squares,
                                                   .widen = widen,
                                                   .dots8 = vnni_sums8<Products8, false>,
                                                   .squares8 = vnni_sums8<Squares8, false>,
                                                   .own8 = vnni_sums8<Products8, true>};

}  // namespace hamtarget

#endif
