// What to look for, and what it will cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "code.hpp"
#include "hits.hpp"
#include "manifest.hpp"

namespace hamtarget {

// The ids that may be hits: those in a list, or those whose place in a mask is set.
class Filter {
  public:
    // `ids` ascend.
    Filter(const std::int64_t* ids, std::size_t count) : ids_(ids), size_(count) {}
    // Element i of the mask says whether id i is allowed; other ids are not.
    Filter(const bool* mask, std::size_t size) : mask_(mask), size_(size) {}

    bool allows(std::int64_t id) const {
        if (size_ == 0) return false;
        if (ids_) return std::binary_search(ids_, ids_ + size_, id);
        return id >= 0 && static_cast<std::uint64_t>(id) < size_ && mask_[id];
    }

  private:
    const std::int64_t* ids_ = nullptr;
    const bool* mask_ = nullptr;
    std::size_t size_;
};

struct Request {
    Codes queries{};
    Distance radius = 0;
    std::size_t limit = kNoLimit;
    std::optional<Filter> filter;
    std::size_t rerank = 0;                    // closest so many hits by embedding; 0: order by code
    const std::uint8_t* embeddings = nullptr;  // of the queries, where hits are re-ranked
    const float* logits = nullptr;             // of the queries, where buckets are probed: n_bits each
    std::size_t budget = 0;                    // rows that probing may read for a query
    std::size_t comparisons = kNoLimit;        // rows whose embeddings are compared, where buckets are probed
};

// Costs, in rows of a linear scan (about 0.1 ns): a bucket far away in memory, and a row in it.
inline constexpr std::size_t kBucketCost = 500;
inline constexpr std::size_t kBucketRowCost = 2;

// What the steps of a search cost, known before it starts.
class StepCosts {
  public:
    StepCosts(const Layout& layout, const Manifest& manifest, std::size_t radius) : until_(radius + 2, 0.0) {
        for (const Part& part : manifest.parts) {
            const auto& tables = part.segment->tables;
            if (tables.empty()) continue;
            scan_ += static_cast<double>(part.n_rows);
            for (std::size_t t = 0; t <= radius; ++t) {
                const Table& table = tables[t % layout.n_tables];
                until_[t + 1] += choose(table.key.length(), t / layout.n_tables) *
                                 (kBucketCost + kBucketRowCost * table.mean_bucket);
            }
        }
        for (std::size_t t = 0; t <= radius; ++t) until_[t + 1] += until_[t];
    }

    double steps(std::size_t first, std::size_t last) const { return until_[last + 1] - until_[first]; }
    double scan() const { return scan_; }

  private:
    static double choose(std::size_t n, std::size_t k) {
        if (k > n) return 0;
        double result = 1;
        for (std::size_t i = 0; i < k; ++i) result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
        return result;
    }

    double scan_ = 0;
    std::vector<double> until_;  // [t]: of the steps before t
};

}  // namespace hamtarget
