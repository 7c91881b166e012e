// Distances between embeddings, by the widest instructions of the CPU at hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "code.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hamtarget {

enum class Element : std::uint8_t { kFloat32, kFloat16, kInt8 };
enum class Metric : std::uint8_t { kEuclidean, kCosine, kDot };

// Sums of int8 products stay within 32 bits.
inline constexpr std::size_t kMaxDims = 16'384;

// What the embeddings of an index are.
struct EmbeddingKind {
    std::size_t n_dims = 0;  // 0: there are none
    Element element = Element::kFloat32;
    Metric metric = Metric::kEuclidean;

    std::size_t element_bytes() const {
        return element == Element::kFloat32 ? 4 : element == Element::kFloat16 ? 2 : 1;
    }
    std::size_t row_bytes() const { return n_dims * element_bytes(); }
    // Queries of float16 embeddings are float32: nothing is lost, and nothing is converted twice.
    std::size_t query_bytes() const { return n_dims * (element == Element::kInt8 ? 1 : 4); }

    friend bool operator==(const EmbeddingKind&, const EmbeddingKind&) = default;
};

// So many rows are compared in one call, since what a sum of int8 ends with serves several rows at once.
inline constexpr std::size_t kBatchRows = 16;

// Sums over the elements of two rows, by the instructions of one kind of CPU.
struct EmbeddingKernel {
    // Of a query and each of up to kBatchRows rows.
    using Sums8 = void (*)(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows, std::size_t n,
                           std::int32_t* sums);

    const char* name;
    float (*dot)(const float*, const float*, std::size_t);
    float (*squares)(const float*, const float*, std::size_t);  // of differences
    void (*widen)(const std::uint16_t*, float*, std::size_t);   // float16 to float32
    Sums8 dots8;                                                // products
    Sums8 squares8;                                             // of differences
    Sums8 own8;                                                 // each row with itself; no query
};

namespace kernels {

// So many sums side by side are what the compiler turns into registers; their order does not depend on the CPU.
inline constexpr std::size_t kLanes = 32;

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

// The same four functions, compiled for one kind of CPU.
#define HAMTARGET_EMBEDDING_KERNEL(NAME, ...)                                                                          \
    __VA_ARGS__ inline float NAME##_dot(const float* a, const float* b, std::size_t n) {                               \
        return float_sum(n, [=](std::size_t i) __attribute__((always_inline)) { return a[i] * b[i]; });                \
    }                                                                                                                  \
    __VA_ARGS__ inline float NAME##_squares(const float* a, const float* b, std::size_t n) {                           \
        return float_sum(n,                                                                                            \
                         [=](std::size_t i) __attribute__((always_inline)) { return (a[i] - b[i]) * (a[i] - b[i]); }); \
    }                                                                                                                  \
    __VA_ARGS__ inline std::int32_t NAME##_dot8(const std::int8_t* a, const std::int8_t* b, std::size_t n) {           \
        std::int32_t sum = 0;                                                                                          \
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<std::int16_t>(a[i]) * static_cast<std::int16_t>(b[i]);  \
        return sum;                                                                                                    \
    }                                                                                                                  \
    __VA_ARGS__ inline std::int32_t NAME##_square8(const std::int8_t* a, const std::int8_t* b, std::size_t n) {        \
        std::int32_t sum = 0;                                                                                          \
        for (std::size_t i = 0; i < n; ++i) {                                                                          \
            const auto difference = static_cast<std::int16_t>(a[i] - b[i]);                                            \
            sum += difference * difference;                                                                            \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

HAMTARGET_EMBEDDING_KERNEL(portable)

// Row after row, by a function for one of them.
template <std::int32_t (*sum)(const std::int8_t*, const std::int8_t*, std::size_t)>
void sums8(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows, std::size_t n,
           std::int32_t* sums) {
    for (std::size_t i = 0; i < n_rows; ++i) sums[i] = sum(query ? query : rows[i], rows[i], n);
}

inline void portable_widen(const std::uint16_t* half, float* result, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) result[i] = widened(half[i]);
}

#if defined(__x86_64__)

#define HAMTARGET_AVX2_FLOAT gnu::target("avx2,fma,f16c")
#define HAMTARGET_AVX512_FLOAT gnu::target("avx512f,avx512bw,avx512vl,fma,f16c,prefer-vector-width=512")

HAMTARGET_EMBEDDING_KERNEL(avx2, [[HAMTARGET_AVX2_FLOAT]])
HAMTARGET_EMBEDDING_KERNEL(avx512, [[HAMTARGET_AVX512_FLOAT]])

[[HAMTARGET_AVX2_FLOAT]] inline void f16c_widen(const std::uint16_t* half, float* result, std::size_t n) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(result + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i))));
    for (; i < n; ++i) result[i] = widened(half[i]);
}

#define HAMTARGET_VNNI gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")

// Sums of the lanes of four registers.
[[HAMTARGET_VNNI]] HAMTARGET_INLINE __m128i four_sums(const __m512i* lanes) {
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(lanes[0], lanes[1]),
                                           _mm512_unpackhi_epi32(lanes[0], lanes[1]));
    const __m512i second = _mm512_add_epi32(_mm512_unpacklo_epi32(lanes[2], lanes[3]),
                                            _mm512_unpackhi_epi32(lanes[2], lanes[3]));
    const __m512i four = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// What the instruction vpdpbusd multiplies has a sign on one side only. So 128 is added to the elements of rows, and
// 128 times the other side is taken away again.
struct Products8 {
    [[HAMTARGET_VNNI]] HAMTARGET_INLINE static __m512i add(__m512i sums, __m512i query, __m512i row) {
        const __m512i above = _mm512_set1_epi8(-128);
        const __m512i excess = _mm512_dpbusd_epi32(_mm512_setzero_si512(), above, query);
        return _mm512_sub_epi32(_mm512_dpbusd_epi32(sums, _mm512_xor_si512(row, above), query), excess);
    }
};

// Differences of int8 take nine bits; without their signs, eight.
struct Squares8 {
    [[HAMTARGET_VNNI]] HAMTARGET_INLINE static __m512i add(__m512i sums, __m512i query, __m512i row) {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i apart = _mm512_sub_epi8(_mm512_max_epi8(query, row), _mm512_min_epi8(query, row));
        const __m512i low = _mm512_unpacklo_epi8(apart, zero), high = _mm512_unpackhi_epi8(apart, zero);
        return _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sums, low, low), high, high);
    }
};

// Four rows at a time; past the last, the last again.
template <class Term, bool own>
[[HAMTARGET_VNNI]] inline void vnni_sums8(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows,
                                          std::size_t n, std::int32_t* sums) {
    for (std::size_t start = 0; start < n_rows; start += 4) {
        const std::int8_t* four[4];
        for (std::size_t k = 0; k < 4; ++k) four[k] = rows[std::min(start + k, n_rows - 1)];
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
        std::copy_n(results, std::min<std::size_t>(4, n_rows - start), sums + start);
    }
}

#endif

}  // namespace kernels

// The fastest one that this CPU can run.
inline const EmbeddingKernel& embedding_kernel() {
    static const EmbeddingKernel chosen = [] {
        using namespace kernels;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
            if (__builtin_cpu_supports("avx512vnni"))
                return EmbeddingKernel{"avx512vnni",
                                       avx512_dot,
                                       avx512_squares,
                                       f16c_widen,
                                       vnni_sums8<Products8, false>,
                                       vnni_sums8<Squares8, false>,
                                       vnni_sums8<Products8, true>};
            return EmbeddingKernel{"avx512",
                                   avx512_dot,
                                   avx512_squares,
                                   f16c_widen,
                                   sums8<avx512_dot8>,
                                   sums8<avx512_square8>,
                                   sums8<avx512_dot8>};
        }
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            return EmbeddingKernel{"avx2",
                                   avx2_dot,
                                   avx2_squares,
                                   f16c_widen,
                                   sums8<avx2_dot8>,
                                   sums8<avx2_square8>,
                                   sums8<avx2_dot8>};
#endif
        return EmbeddingKernel{"portable",
                               portable_dot,
                               portable_squares,
                               portable_widen,
                               sums8<portable_dot8>,
                               sums8<portable_square8>,
                               sums8<portable_dot8>};
    }();
    return chosen;
}

// Distances of one query's embedding to those of rows; smaller is closer. Euclidean distances are squared until
// `reported` takes the root: their order is the same.
class EmbeddingDistance {
  public:
    explicit EmbeddingDistance(const EmbeddingKind& kind)
        : kind_(kind), kernel_(embedding_kernel()), wide_(kind.element == Element::kFloat16 ? kind.n_dims : 0) {}

    void set_query(const void* query) {
        query_ = query;
        if (kind_.metric != Metric::kCosine) return;
        if (kind_.element == Element::kInt8) {
            const std::int8_t* row = int8(query);
            std::int32_t sum;
            kernel_.own8(nullptr, &row, 1, kind_.n_dims, &sum);
            query_norm_ = std::sqrt(static_cast<float>(sum));
        } else {
            query_norm_ = std::sqrt(kernel_.dot(floats(query), floats(query), kind_.n_dims));
        }
    }

    // To each of up to kBatchRows rows.
    void operator()(const std::uint8_t* const* rows, std::size_t count, float* distances) {
        kind_.element == Element::kInt8 ? whole(rows, count, distances) : real(rows, count, distances);
        // Numbers too large for float32 give no number, and sorting needs one. Adding 0 makes -0 a plain 0.
        for (std::size_t i = 0; i < count; ++i)
            distances[i] = std::isnan(distances[i]) ? std::numeric_limits<float>::infinity() : distances[i] + 0.0f;
    }

    const EmbeddingKind& kind() const { return kind_; }
    float reported(float distance) const { return kind_.metric == Metric::kEuclidean ? std::sqrt(distance) : distance; }

  private:
    static const std::int8_t* int8(const void* row) { return static_cast<const std::int8_t*>(row); }
    static const float* floats(const void* row) { return static_cast<const float*>(row); }

    // A row of zeros has no direction: it counts as a right angle.
    float cosine_distance(float product, float own) const {
        const float norms = query_norm_ * std::sqrt(own);
        return norms > 0 ? 1 - product / norms : 1;
    }

    void whole(const std::uint8_t* const* rows, std::size_t count, float* distances) const {
        const auto* numbers = reinterpret_cast<const std::int8_t* const*>(rows);
        std::int32_t sums[kBatchRows], own[kBatchRows];
        const auto& sums8 = kind_.metric == Metric::kEuclidean ? kernel_.squares8 : kernel_.dots8;
        sums8(int8(query_), numbers, count, kind_.n_dims, sums);
        if (kind_.metric == Metric::kCosine) {
            kernel_.own8(nullptr, numbers, count, kind_.n_dims, own);
            for (std::size_t i = 0; i < count; ++i)
                distances[i] = cosine_distance(static_cast<float>(sums[i]), static_cast<float>(own[i]));
        } else {
            const float sign = kind_.metric == Metric::kDot ? -1 : 1;
            for (std::size_t i = 0; i < count; ++i) distances[i] = sign * static_cast<float>(sums[i]);
        }
    }

    void real(const std::uint8_t* const* rows, std::size_t count, float* distances) {
        for (std::size_t i = 0; i < count; ++i) {
            const void* bytes = rows[i];
            if (kind_.element == Element::kFloat16) {
                kernel_.widen(static_cast<const std::uint16_t*>(bytes), wide_.data(), kind_.n_dims);
                bytes = wide_.data();
            }
            const float *query = floats(query_), *row = floats(bytes);
            if (kind_.metric == Metric::kEuclidean) {
                distances[i] = kernel_.squares(query, row, kind_.n_dims);
            } else {
                const float product = kernel_.dot(query, row, kind_.n_dims);
                distances[i] = kind_.metric == Metric::kDot
                                   ? -product
                                   : cosine_distance(product, kernel_.dot(row, row, kind_.n_dims));
            }
        }
    }

    EmbeddingKind kind_;
    const EmbeddingKernel& kernel_;
    std::vector<float> wide_;
    const void* query_ = nullptr;
    float query_norm_ = 0;
};

}  // namespace hamtarget
