// Rows that a query has met: the same row comes out of several tables.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/codes.hpp"

namespace hamtarget {

// A hash table whose places name the query that filled them, so that it is not cleared between queries.
class RowSet {
  public:
    // Forget everything, and make room for so many rows.
    void reset(std::size_t most) {
        const int width = std::max(8, static_cast<int>(std::bit_width(2 * most)));
        shift_ = 64 - width;
        mask_ = (std::size_t{1} << width) - 1;
        if (places_.size() <= mask_ || ++stamp_ == 0) {
            places_.assign(std::max(places_.size(), mask_ + 1), 0);
            stamp_ = 1;
        }
    }

    // Add the row of this hit, and tell whether it is new.
    bool add(Hit hit) {
        const std::uint64_t row = raw(hit) & 0xFFFFFFFFFFFF;
        const std::uint64_t wanted = std::uint64_t{stamp_} << 48 | row;
        // Multiplying by 2^64 / golden ratio spreads neighbours (Knuth, volume 3, 6.4).
        std::size_t place = row * 0x9E3779B97F4A7C15 >> shift_;
        while (places_[place] >> 48 == stamp_) {
            if (places_[place] == wanted) return false;
            place = (place + 1) & mask_;
        }
        places_[place] = wanted;
        return true;
    }

  private:
    std::vector<std::uint64_t> places_;
    std::uint16_t stamp_ = 0;
    int shift_ = 0;
    std::size_t mask_ = 0;
};

}  // namespace hamtarget
