// Sums over embeddings in plain C++, compiled once for each instruction set. inline.hpp says why this namespace has no
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "embedding_kernel.hpp"
#include "inline.hpp"

namespace hamtarget {

namespace {

// Sums side by side, which the compiler turns into registers. Their order does not depend on the CPU.
constexpr std::size_t kLanes = 32;

template <class Term>
HAMTARGET_INLINE float float_sum(std::size_t n, Term term) {
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
    for (std::size_t width = kLanes / 2; width; width /= 2)
        for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    return lanes[0];
}

HAMTARGET_INLINE float widened(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16;
    std::uint32_t magnitude = half & 0x7FFFu;
    float value;
    if (magnitude >= 0x7C00u) {
        magnitude = magnitude << 13 | 0x7F800000u;
        std::memcpy(&value, &magnitude, 4);
    } else {
        // Exponents are 112 apart; multiplying by 2^112 is exact and also makes subnormal numbers normal.
        magnitude <<= 13;
        std::memcpy(&value, &magnitude, 4);
        value *= 0x1p112f;
    }
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits |= sign;
    std::memcpy(&value, &bits, 4);
    return value;
}

[[maybe_unused]] float dot(const float* a, const float* b, std::size_t n) {
    return float_sum(n, [=](std::size_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}

[[maybe_unused]] float squares(const float* a, const float* b, std::size_t n) {
    return float_sum(n, [=](std::size_t i) __attribute__((always_inline)) { return (a[i] - b[i]) * (a[i] - b[i]); });
}

[[maybe_unused]] std::int32_t dot8(const std::int8_t* a, const std::int8_t* b, std::size_t n) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<std::int16_t>(a[i]) * static_cast<std::int16_t>(b[i]);
    return sum;
}

[[maybe_unused]] std::int32_t square8(const std::int8_t* a, const std::int8_t* b, std::size_t n) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto difference = static_cast<std::int16_t>(a[i] - b[i]);
        sum += difference * difference;
    }
    return sum;
}

// EmbeddingKernel::Sums8 row after row, by a function for one of them.
template <std::int32_t (*sum)(const std::int8_t*, const std::int8_t*, std::size_t)>
void sums8(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows, std::size_t n,
           std::int32_t* sums) {
    for (std::size_t i = 0; i < n_rows; ++i) sums[i] = sum(query ? query : rows[i], rows[i], n);
}

#if defined(__F16C__)

[[maybe_unused]] void widen(const std::uint16_t* half, float* result, std::size_t n) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(result + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i))));
    for (; i < n; ++i) result[i] = widened(half[i]);
}

#else

[[maybe_unused]] void widen(const std::uint16_t* half, float* result, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) result[i] = widened(half[i]);
}

#endif

constexpr EmbeddingKernel embedding_kernel_by_loops(const char* name) {
    return {.name = name,
            .dot = dot,
            .squares = squares,
            .widen = widen,
            .dots8 = sums8<dot8>,
            .squares8 = sums8<square8>,
            .own8 = sums8<dot8>};
}

}  // namespace

}  // namespace hamtarget
