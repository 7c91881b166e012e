// Keeping the closest hits by embedding distance (HDT-E in the paper, section 2.3).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../embedding.hpp"
#include "../hits.hpp"
#include "../manifest.hpp"
#include "request.hpp"
#include "smallest.hpp"

namespace hamtarget {

// Ranks the hits of the queries of a request. Each thread has its own.
class Reranker {
  public:
    Reranker(const Manifest& manifest, const Request& request, const EmbeddingKind& kind, Work& work)
        : manifest_(manifest), request_(request), work_(work), order_(manifest), distance_(kind) {}

    // Append the closest of the hits found for a query, by (embedding distance, id).
    void append(std::size_t query, std::span<const Hit> found, Hits& hits) {
        distance_.set_query(request_.embeddings + query * distance_.kind().query_bytes());
        rank(found, request_.rerank);
        const std::size_t count = ranked_.size();
        Id* ids = hits.ids.extend(count);
        Distance* distances = hits.distances.extend(count);
        float* embedding_distances = hits.embedding_distances.extend(count);
        for (std::size_t i = 0; i < count; ++i) {
            const Hit hit = found[index_of(ranked_[i])];
            ids[i] = order_.id(hit);
            distances[i] = distance_of(hit);
            embedding_distances[i] = distance_.reported(distance_from(number_of(ranked_[i])));
        }
    }

  private:
    // Turn a distance into a whole number, in the same order.
    static std::uint32_t ordered(float distance) {
        const auto bits = std::bit_cast<std::uint32_t>(distance);
        return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
    }
    static float distance_from(std::uint32_t ordered) {
        return std::bit_cast<float>(ordered ^ (ordered >> 31 ? 0x80000000u : 0xFFFFFFFFu));
    }

    const std::uint8_t* embedding(Hit hit) const {
        return manifest_.parts[part_of(hit)].segment->embedding(row_of(hit), distance_.kind().row_bytes());
    }

    void rank(std::span<const Hit> found, std::size_t count) {
        // Rows are far apart in memory, so they are fetched two batches ahead.
        constexpr std::size_t kAhead = 2 * kBatchRows;
        const std::size_t width = distance_.kind().row_bytes();
        const auto closer = [&](Ranked left, Ranked right) {
            if (number_of(left) != number_of(right)) return left < right;
            return order_.id(found[index_of(left)]) < order_.id(found[index_of(right)]);
        };
        // Once there are `count`, farther rows are passed over. Rows that closer ones have replaced are dropped now and
        // then, which takes constant time a hit.
        constexpr std::size_t kMany = 1024;
        const std::size_t full = count < found.size() ? std::max(4 * count, kMany) : found.size() + 1;
        ranked_.clear();
        std::uint32_t bound = ~0u;
        for (std::size_t i = 0; i < std::min(kAhead, found.size()); ++i) prefetch_bytes(embedding(found[i]), width);
        for (std::size_t start = 0; start < found.size(); start += kBatchRows) {
            const std::size_t rows = std::min(kBatchRows, found.size() - start);
            work_.spend(rows * (16 + width / 16));
            const std::uint8_t* embeddings[kBatchRows];
            float distances[kBatchRows];
            for (std::size_t i = 0; i < rows; ++i) {
                embeddings[i] = embedding(found[start + i]);
                if (start + i + kAhead < found.size()) prefetch_bytes(embedding(found[start + i + kAhead]), width);
            }
            distance_(embeddings, rows, distances);
            for (std::size_t i = 0; i < rows; ++i)
                if (ordered(distances[i]) <= bound) ranked_.push_back(ranked_of(ordered(distances[i]), start + i));
            if (ranked_.size() < full) continue;
            keep_smallest(ranked_, count, room_, closer);
            bound = number_of(*std::max_element(ranked_.begin(), ranked_.end()));
        }
        keep_smallest(ranked_, count, room_, closer);
        work_.in_order(ranked_.size(), closer, [&](const auto& less) { std::sort(ranked_.begin(), ranked_.end(), less); });
    }

    const Manifest& manifest_;
    const Request& request_;
    Work& work_;
    const HitOrder order_;
    EmbeddingDistance distance_;
    std::vector<Ranked> ranked_, room_;
};

}  // namespace hamtarget
