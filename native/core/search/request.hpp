// What to search for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../hits.hpp"
#include "../limits.hpp"
#include "../manifest.hpp"

namespace hamtarget {

// The ids that may be hits: the ids of a list, or those whose place in a mask is set.
class Filter {
  public:
    // Allow these ids, which ascend.
    Filter(const Id* ids, std::size_t count) : ids_(ids), size_(count) {}
    // Allow each id i for which element i of the mask is true, and no other id.
    Filter(const bool* mask, std::size_t size) : mask_(mask), size_(size) {}

    // Tell whether this is a list of ids.
    bool is_list() const { return mask_ == nullptr; }
    std::span<const Id> ids() const { return {ids_, size_}; }

    bool allows(Id id) const {
        if (size_ == 0) return false;
        if (ids_) return std::binary_search(ids_, ids_ + size_, id);
        return id >= 0 && static_cast<std::uint64_t>(id) < size_ && mask_[id];
    }

  private:
    const Id* ids_ = nullptr;
    const bool* mask_ = nullptr;
    std::size_t size_;
};

struct Request {
    Codes queries{};
    Distance radius = 0;
    std::size_t limit = kNoLimit;
    std::optional<Filter> filter;
    std::size_t rerank = 0;                    // hits kept, the closest by embedding; 0: all, by code
    const std::uint8_t* embeddings = nullptr;  // of the queries, if hits are re-ranked
    const float* logits = nullptr;             // of the queries, if buckets are probed: n_bits each
    std::size_t budget = 0;                    // rows that probing may read for a query
    std::size_t comparisons = kNoLimit;        // rows whose embeddings are compared, if buckets are probed
    Limits* limits = nullptr;                  // on the work of all queries together; null: none
};

}  // namespace hamtarget
