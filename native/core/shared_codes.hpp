// Rows that have the same code.
//
// Hashes of real collections repeat: half of the rows may have a code that another row has, too. A segment of such rows
// stores each code once, so that tables are smaller and searches read less; and it has the rows of each code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "../kernels/codes.hpp"
#include "array.hpp"

namespace hamtarget {

// The rows of each code, in one list after another: how many they are, then the rows, ascending. The number of a code is
// the place of its list, so that one look finds its rows.
class SharedCodes {
  public:
    SharedCodes() = default;
    SharedCodes(Array<const std::uint32_t> lists, std::size_t n_rows)
        : lists_(std::move(lists)), last_row_(static_cast<std::uint32_t>(n_rows - 1)) {}

    // Tell whether every row has a code of its own: then the number of a code is that of its row.
    bool empty() const { return lists_.empty(); }

    // Call found(row) for each row of a code. The lists may be those of a damaged file: what is read is brought into
    // range.
    template <class Found>
    void each_row(RowNumber code, Found found) const {
        for (const std::uint32_t row : list(code)) found(RowNumber{std::min(row, last_row_)});
    }

    // Return the rows of a code, as a file has them.
    std::span<const std::uint32_t> list(RowNumber code) const {
        const std::size_t at = std::min<std::size_t>(raw(code), lists_.size() - 1);
        return {lists_.data() + at + 1, std::min<std::size_t>(lists_[at], lists_.size() - at - 1)};
    }

    void prefetch(RowNumber code) const { __builtin_prefetch(lists_.data() + raw(code)); }

    const Array<const std::uint32_t>& lists() const { return lists_; }
    std::size_t n_bytes() const { return lists_.n_bytes(); }

  private:
    Array<const std::uint32_t> lists_;  // empty: no rows share codes
    std::uint32_t last_row_ = 0;
};

}  // namespace hamtarget
