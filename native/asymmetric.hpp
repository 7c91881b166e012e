// Asymmetric distance: of a query's logits to a code, the sum of |logit| over the bits that differ from the query's.
// It orders rows better than Hamming distance does, at the price of a few instructions a row.
//
// |logit| counts in whole units, 63 for the largest of a query: then the sum of any four bits fits a byte, and one
// table of 16 bytes for every half byte of a code serves all kernels, which give the same results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "code.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hamtarget {

// At most 63 x 1,024 bits.
using Asymmetric = std::uint16_t;

inline constexpr std::uint32_t kMostAsymmetricUnits = 63;

class AsymmetricDistance {
  public:
    void set_query(const float* logits, const std::uint8_t* code, std::size_t n_bytes) {
        n_bytes_ = n_bytes;
        query_ = code;
        float largest = 0;
        for (std::size_t bit = 0; bit < 8 * n_bytes; ++bit) largest = std::max(largest, std::abs(logits[bit]));
        const double scale = largest > 0 ? kMostAsymmetricUnits / static_cast<double>(largest) : 0;
        unit_ = largest / kMostAsymmetricUnits;
        highest_ = 0;
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            std::uint8_t units[8];
            for (std::size_t bit = 0; bit < 8; ++bit) {
                units[bit] = static_cast<std::uint8_t>(std::abs(logits[8 * byte + bit]) * scale + 0.5);
                highest_ = static_cast<Asymmetric>(highest_ + units[bit]);
            }
            fill(low_ + 16 * byte, units);
            fill(high_ + 16 * byte, units + 4);
        }
    }

    // The size of a unit, in logits.
    float unit() const { return unit_; }
    // No code is farther.
    Asymmetric highest() const { return highest_; }

    Asymmetric operator()(const std::uint8_t* code) const {
        unsigned sum = 0;
        for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
            const unsigned differing = code[byte] ^ query_[byte];
            sum += low_[16 * byte + (differing & 15)] + high_[16 * byte + (differing >> 4)];
        }
        return static_cast<Asymmetric>(sum);
    }

    // Tables of the lower and the upper half of each byte, one after another.
    const std::uint8_t* low() const { return low_; }
    const std::uint8_t* high() const { return high_; }

  private:
    static void fill(std::uint8_t* table, const std::uint8_t* units) {
        table[0] = 0;
        for (unsigned bit = 0; bit < 4; ++bit)
            for (unsigned lower = 0; lower < 1u << bit; ++lower)
                table[1u << bit | lower] = static_cast<std::uint8_t>(table[lower] + units[bit]);
    }

    alignas(64) std::uint8_t low_[16 * kMaxCodeBytes];
    alignas(64) std::uint8_t high_[16 * kMaxCodeBytes];
    std::size_t n_bytes_ = 0;
    const std::uint8_t* query_ = nullptr;
    Asymmetric highest_ = 0;
    float unit_ = 0;
};

#if defined(__x86_64__)

namespace kernels {

#define HAMTARGET_AVX512_VBMI gnu::target("avx512f,avx512bw,avx512vl,avx512vpopcntdq,avx512vbmi,popcnt")

// Distances of eight codes of 8 bytes, given what differs from the query: both halves of all bytes are looked up at
// once, each position of a byte in its own 16 places of a table of 128.
struct EightAsymmetric {
    __m512i low[2], high[2];

    [[HAMTARGET_AVX512_VBMI]] HAMTARGET_INLINE static EightAsymmetric of(const AsymmetricDistance& distance) {
        return {{_mm512_load_si512(distance.low()), _mm512_load_si512(distance.low() + 64)},
                {_mm512_load_si512(distance.high()), _mm512_load_si512(distance.high() + 64)}};
    }

    [[HAMTARGET_AVX512_VBMI]] HAMTARGET_INLINE __m512i operator()(__m512i differing) const {
        const __m512i half = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
        const __m512i position = _mm512_set1_epi64(0x7060504030201000);
        const __m512i lower = _mm512_or_si512(_mm512_and_si512(differing, half), position);
        const __m512i upper = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi64(differing, 4), half), position);
        return _mm512_add_epi64(_mm512_sad_epu8(_mm512_permutex2var_epi8(low[0], lower, low[1]), zero),
                                _mm512_sad_epu8(_mm512_permutex2var_epi8(high[0], upper, high[1]), zero));
    }
};

}  // namespace kernels

#endif

}  // namespace hamtarget
