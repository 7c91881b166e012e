// The closest of the hits by embedding distance (HDT-E in the paper, section 2.3).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "hits.hpp"
#include "kernel.hpp"

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

// Sums over the elements of two rows, by the instructions of one kind of CPU.
struct EmbeddingKernel {
    const char* name;
    float (*dot)(const float*, const float*, std::size_t);
    float (*squares)(const float*, const float*, std::size_t);  // of differences
    std::int32_t (*dot8)(const std::int8_t*, const std::int8_t*, std::size_t);
    std::int32_t (*squares8)(const std::int8_t*, const std::int8_t*, std::size_t);
    void (*widen)(const std::uint16_t*, float*, std::size_t);  // float16 to float32
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

// The same five functions, compiled for one kind of CPU.
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
    __VA_ARGS__ inline std::int32_t NAME##_squares8(const std::int8_t* a, const std::int8_t* b, std::size_t n) {       \
        std::int32_t sum = 0;                                                                                          \
        for (std::size_t i = 0; i < n; ++i) {                                                                          \
            const auto difference = static_cast<std::int16_t>(a[i] - b[i]);                                            \
            sum += difference * difference;                                                                            \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

HAMTARGET_EMBEDDING_KERNEL(portable)

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

#endif

}  // namespace kernels

// The fastest one that this CPU can run.
inline const EmbeddingKernel& embedding_kernel() {
    static const EmbeddingKernel chosen = [] {
        using namespace kernels;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            return EmbeddingKernel{"avx512", avx512_dot, avx512_squares, avx512_dot8, avx512_squares8, f16c_widen};
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            return EmbeddingKernel{"avx2", avx2_dot, avx2_squares, avx2_dot8, avx2_squares8, f16c_widen};
#endif
        return EmbeddingKernel{"portable",    portable_dot,      portable_squares,
                               portable_dot8, portable_squares8, portable_widen};
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
        if (kind_.metric == Metric::kCosine) query_norm_ = std::sqrt(product(query, query));
    }

    float operator()(const std::uint8_t* row_bytes) {
        const void* row = row_bytes;
        if (kind_.element == Element::kFloat16) {
            kernel_.widen(reinterpret_cast<const std::uint16_t*>(row_bytes), wide_.data(), kind_.n_dims);
            row = wide_.data();
        }
        switch (kind_.metric) {
            case Metric::kEuclidean:
                return kind_.element == Element::kInt8
                           ? static_cast<float>(kernel_.squares8(int8(query_), int8(row), kind_.n_dims))
                           : kernel_.squares(floats(query_), floats(row), kind_.n_dims);
            case Metric::kDot: return -product(query_, row);
            default: {
                const float norms = query_norm_ * std::sqrt(product(row, row));
                // A row of zeros has no direction: it counts as a right angle.
                return norms > 0 ? 1 - product(query_, row) / norms : 1;
            }
        }
    }

    const EmbeddingKind& kind() const { return kind_; }
    float reported(float distance) const { return kind_.metric == Metric::kEuclidean ? std::sqrt(distance) : distance; }

  private:
    static const std::int8_t* int8(const void* row) { return static_cast<const std::int8_t*>(row); }
    static const float* floats(const void* row) { return static_cast<const float*>(row); }

    float product(const void* left, const void* right) const {
        return kind_.element == Element::kInt8 ? static_cast<float>(kernel_.dot8(int8(left), int8(right), kind_.n_dims))
                                               : kernel_.dot(floats(left), floats(right), kind_.n_dims);
    }

    EmbeddingKind kind_;
    const EmbeddingKernel& kernel_;
    std::vector<float> wide_;
    const void* query_ = nullptr;
    float query_norm_ = 0;
};

struct RankedHit {
    float embedding_distance;
    Hit hit;
    std::int64_t id;

    friend bool operator<(const RankedHit& left, const RankedHit& right) {
        return left.embedding_distance != right.embedding_distance ? left.embedding_distance < right.embedding_distance
                                                                   : left.id < right.id;
    }
};

// The closest `count` of the hits to the query that was set, by (embedding distance, id), into `ranked`.
// `row_of(hit)` is where the hit's embedding lies.
template <class RowOf>
void rerank(std::span<const Hit> hits, std::size_t count, const HitOrder& order, EmbeddingDistance& distance,
            RowOf row_of, std::vector<RankedHit>& ranked) {
    // Rows are far apart in memory: ask for them a few hits ahead.
    constexpr std::size_t kAhead = 8;
    ranked.clear();
    for (std::size_t i = 0; i < hits.size(); ++i) {
        if (i + kAhead < hits.size()) prefetch_bytes(row_of(hits[i + kAhead]), distance.kind().row_bytes());
        const float found = distance(row_of(hits[i]));
        // Numbers too large for float32 give no number; sorting needs one.
        ranked.push_back(
            {std::isnan(found) ? std::numeric_limits<float>::infinity() : found, hits[i], order.id(hits[i])});
    }
    if (ranked.size() > count) {
        std::nth_element(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
        ranked.resize(count);
    }
    std::sort(ranked.begin(), ranked.end());
    for (RankedHit& hit : ranked) hit.embedding_distance = distance.reported(hit.embedding_distance);
}

}  // namespace hamtarget
