// Distances between embeddings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "../kernels/embedding_kernel.hpp"

namespace hamtarget {

enum class Element : std::uint8_t { kFloat32, kFloat16, kInt8 };
enum class Metric : std::uint8_t { kEuclidean, kCosine, kDot };

// With so many dimensions, sums of int8 products still fit 32 bits.
inline constexpr std::size_t kMaxDims = 16'384;

// Length, type and metric of the embeddings of an index.
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

// Distances of one query's embedding to those of rows; smaller is closer. Euclidean distances are squared until
// `reported` takes the root, because their order is the same.
class EmbeddingDistance {
  public:
    explicit EmbeddingDistance(const EmbeddingKind& kind)
        : kind_(kind),
          kernel_(*supported_embedding_kernels().front()),
          wide_(kind.element == Element::kFloat16 ? kind.n_dims : 0) {}

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

    // Compute the distance to each of up to kBatchRows rows.
    void operator()(const std::uint8_t* const* rows, std::size_t count, float* distances) {
        kind_.element == Element::kInt8 ? whole(rows, count, distances) : real(rows, count, distances);
        // Numbers too large for float32 give NaN, which cannot be sorted. Adding 0 makes -0 a plain 0.
        for (std::size_t i = 0; i < count; ++i)
            distances[i] = std::isnan(distances[i]) ? std::numeric_limits<float>::infinity() : distances[i] + 0.0f;
    }

    const EmbeddingKind& kind() const { return kind_; }
    float reported(float distance) const { return kind_.metric == Metric::kEuclidean ? std::sqrt(distance) : distance; }

  private:
    static const std::int8_t* int8(const void* row) { return static_cast<const std::int8_t*>(row); }
    static const float* floats(const void* row) { return static_cast<const float*>(row); }

    // A row of zeros has no direction, so it counts as a right angle. Rounding makes no distance negative; NaN stays NaN.
    float cosine_distance(float product, float own) const {
        const float norms = query_norm_ * std::sqrt(own);
        const float distance = norms > 0 ? 1 - product / norms : 1;
        return distance < 0 ? 0 : distance;
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
