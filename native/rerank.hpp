// The closest of the hits by embedding distance (HDT-E in the paper, section 2.3).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "embedding.hpp"
#include "hits.hpp"
#include "manifest.hpp"
#include "request.hpp"

namespace hamtarget {

// Ranks the hits of the queries of a request. Each thread has its own.
class Reranker {
  public:
    Reranker(const Manifest& manifest, const Request& request, const EmbeddingKind& kind)
        : manifest_(manifest), request_(request), order_(manifest), distance_(kind) {}

    // Appends the closest of the hits found for a query, by (embedding distance, id).
    void append(std::size_t query, std::span<const Hit> found, Hits& hits) {
        distance_.set_query(request_.embeddings + query * distance_.kind().query_bytes());
        rank(found, request_.rerank);
        const std::size_t count = ranked_.size();
        std::int64_t* ids = hits.ids.extend(count);
        Distance* distances = hits.distances.extend(count);
        float* embedding_distances = hits.embedding_distances.extend(count);
        for (std::size_t i = 0; i < count; ++i) {
            const Hit hit = found[index_of(ranked_[i])];
            ids[i] = order_.id(hit);
            distances[i] = distance_of(hit);
            embedding_distances[i] = distance_.reported(real(ranked_[i]));
        }
    }

  private:
    // A hit as one number: its embedding distance, as a whole number of the same order, and its place among the hits.
    using Ranked = std::uint64_t;

    static Ranked ranked_of(float distance, std::size_t index) {
        const auto bits = std::bit_cast<std::uint32_t>(distance);
        return Ranked{bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u)} << 32 | index;
    }
    static float real(Ranked ranked) {
        const auto bits = static_cast<std::uint32_t>(ranked >> 32);
        return std::bit_cast<float>(bits ^ (bits >> 31 ? 0x80000000u : 0xFFFFFFFFu));
    }
    static std::size_t index_of(Ranked ranked) { return ranked & 0xFFFFFFFF; }

    const std::uint8_t* embedding(Hit hit) const {
        const Segment& segment = *manifest_.parts[part_of(hit)].segment;
        return segment.embeddings.data() + row_of(hit) * distance_.kind().row_bytes();
    }

    void rank(std::span<const Hit> found, std::size_t count) {
        // Rows are far apart in memory: they are asked for two batches ahead.
        constexpr std::size_t kAhead = 2 * kBatchRows;
        const std::size_t width = distance_.kind().row_bytes();
        const auto closer = [&](Ranked left, Ranked right) {
            if (left >> 32 != right >> 32) return left < right;
            return order_.id(found[index_of(left)]) < order_.id(found[index_of(right)]);
        };
        // Once there are `count`, what is farther than all of them is passed over. Those that were in between are
        // dropped now and then: constant time a hit.
        const std::size_t full = count < found.size() ? std::max<std::size_t>(2 * count, 64) : found.size();
        const auto cut = [&] {
            if (ranked_.size() <= count) return;
            std::nth_element(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(count - 1), ranked_.end(),
                             closer);
            ranked_.resize(count);
        };
        ranked_.clear();
        Ranked bound = ~Ranked{0};
        for (std::size_t i = 0; i < std::min(kAhead, found.size()); ++i) prefetch_bytes(embedding(found[i]), width);
        for (std::size_t start = 0; start < found.size(); start += kBatchRows) {
            const std::size_t rows = std::min(kBatchRows, found.size() - start);
            const std::uint8_t* embeddings[kBatchRows];
            float distances[kBatchRows];
            for (std::size_t i = 0; i < rows; ++i) {
                embeddings[i] = embedding(found[start + i]);
                if (start + i + kAhead < found.size()) prefetch_bytes(embedding(found[start + i + kAhead]), width);
            }
            distance_(embeddings, rows, distances);
            for (std::size_t i = 0; i < rows; ++i) {
                const Ranked ranked = ranked_of(distances[i], start + i);
                if (ranked <= bound) ranked_.push_back(ranked);
            }
            if (ranked_.size() >= full && ranked_.size() > count) {
                cut();
                // As far as the last one: its id decides, later.
                bound = ranked_.back() | 0xFFFFFFFF;
            }
        }
        cut();
        std::sort(ranked_.begin(), ranked_.end(), closer);
    }

    const Manifest& manifest_;
    const Request& request_;
    const HitOrder order_;
    EmbeddingDistance distance_;
    std::vector<Ranked> ranked_;
};

}  // namespace hamtarget
