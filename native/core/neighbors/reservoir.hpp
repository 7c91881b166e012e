// The rows of a query with the smallest scores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "../../kernels/neighbor_kernel.hpp"

namespace hamtarget {

// Keeps the `most` smallest of what it is given, by score, then by place. It is given more than that, and drops the rest
// now and then; the result does not depend on the order.
class Reservoir {
  public:
    void reset(std::size_t most) {
        most_ = most;
        size_ = 0;
        bound_ = most ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int32_t>::min();
    }

    // What is above this is of no use.
    std::int32_t bound() const { return bound_; }
    std::size_t size() const { return size_; }
    const std::int32_t* scores() const { return scores_.data(); }
    const std::uint32_t* places() const { return places_.data(); }

    // Make room for `count` more.
    void expect(std::size_t count) {
        if (scores_.size() >= size_ + count) return;
        scores_.resize(size_ + count + size_ / 2);
        places_.resize(scores_.size());
    }

    void push(std::int32_t score, std::uint32_t place) {
        scores_[size_] = score;
        places_[size_++] = place;
    }

    // Drop the largest if there are many too many.
    void settle(const NeighborKernel& kernel) {
        if (size_ > most_ + std::max<std::size_t>(most_, 64)) shrink(kernel);
    }

    // Drop all but the smallest.
    void shrink(const NeighborKernel& kernel) {
        if (size_ <= most_) return;
        if (most_ == 0) {
            size_ = 0;
            return;
        }
        bound_ = kernel.bound_of_sums(scores_.data(), size_, most_);
        size_ = kernel.keep_sums(scores_.data(), places_.data(), size_, bound_);
        if (size_ <= most_) return;
        ties_.clear();
        for (std::size_t i = 0; i < size_; ++i)
            if (scores_[i] == bound_) ties_.push_back(places_[i]);
        const std::size_t kept_ties = ties_.size() - (size_ - most_);
        std::nth_element(ties_.begin(), ties_.begin() + static_cast<std::ptrdiff_t>(kept_ties), ties_.end());
        const std::uint32_t first_dropped = ties_[kept_ties];
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i) {
            if (scores_[i] == bound_ && places_[i] >= first_dropped) continue;
            scores_[kept] = scores_[i];
            places_[kept++] = places_[i];
        }
        size_ = kept;
    }

  private:
    std::size_t most_ = 0, size_ = 0;
    std::int32_t bound_ = 0;
    std::vector<std::int32_t> scores_;
    std::vector<std::uint32_t> places_;
    std::vector<std::uint32_t> ties_;
};

}  // namespace hamtarget
