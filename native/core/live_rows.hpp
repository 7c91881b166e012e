// Numbers the rows of a part that are not deleted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "manifest.hpp"

namespace hamtarget {

// Numbers the live rows of a part, from 0 on.
class LiveRows {
  public:
    explicit LiveRows(const Part& part) : part_(part) {
        if (!part.deleted) return;
        std::uint32_t sum = 0;
        before_.reserve(part.deleted->size());
        for (const std::uint64_t word : *part.deleted) {
            before_.push_back(sum);
            sum += static_cast<std::uint32_t>(std::popcount(~word));
        }
    }

    std::size_t number(RowNumber row) const {
        if (!part_.deleted) return raw(row);
        const std::uint64_t below = (std::uint64_t{1} << raw(row) % 64) - 1;
        const std::uint64_t live = ~(*part_.deleted)[raw(row) / 64];
        return before_[raw(row) / 64] + static_cast<std::size_t>(std::popcount(live & below));
    }

  private:
    const Part& part_;
    std::vector<std::uint32_t> before_;  // live rows before each word of bits
};

}  // namespace hamtarget
