// Rows that one query finds in one segment, in a list for each distance: then only row numbers are left to be sorted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "array.hpp"
#include "code.hpp"
#include "merge.hpp"

namespace hamtarget {

class RowLists {
  public:
    // Distances 0 to 15, and so many rows: the lists take up to 64 MB.
    static constexpr std::size_t kMostLists = 16;
    static constexpr std::size_t kMostRows = std::size_t{1} << 20;
    // Past its last row, a list has room for a register.
    static constexpr std::size_t kSlack = 16;

    // Forgets everything. No distance will be above `radius`, and no list will get more than `most_rows`.
    void reset(Distance radius, std::size_t most_rows) {
        sizes_.fill(0);
        ends_.clear();
        if (n_lists_ == radius + 1u && most_rows + kSlack <= room_) return;
        n_lists_ = radius + 1u;
        // Lists that begin at the same place of a page would be in each other's way in the cache: an odd number of lines.
        room_ = 2 * most_rows + kSlack;
        room_ = (room_ / 32 + 1) * 32 + 16;
        rows_.clear();
        rows_.reserve((n_lists_ + 1) * room_);
    }

    std::size_t n_lists() const { return n_lists_; }
    std::uint32_t* list(std::size_t distance) { return rows_.data() + distance * room_; }
    std::span<const std::uint32_t> rows(std::size_t distance) { return {list(distance), sizes_[distance]}; }
    // How many rows each list has.
    std::uint32_t* sizes() { return sizes_.data(); }

    void push(std::size_t distance, std::uint32_t row) { list(distance)[sizes_[distance]++] = row; }

    // What was added since the last call ascends, in each list.
    void end_run() { ends_.insert(ends_.end(), sizes_.begin(), sizes_.begin() + n_lists_); }

    // What was added to one list before the last call of end_run().
    std::span<const std::uint32_t> last_run(std::size_t distance) {
        const std::size_t start = ends_.size() > n_lists_ ? ends_[ends_.size() - 2 * n_lists_ + distance] : 0;
        return rows(distance).subspan(start);
    }

    // The rows at one distance, ascending; until another list is sorted.
    std::span<std::uint32_t> sorted(std::size_t distance, const Kernel& kernel) {
        list_ends_.clear();
        for (std::size_t i = distance; i < ends_.size(); i += n_lists_) list_ends_.push_back(ends_[i]);
        return {sort_rows(kernel, list(distance), list(n_lists_), list_ends_), sizes_[distance]};
    }

  private:
    std::size_t n_lists_ = 0;
    std::size_t room_ = 0;  // of a list
    std::array<std::uint32_t, kMostLists> sizes_{};
    std::vector<std::uint32_t> ends_;       // of each run in each list
    std::vector<std::uint32_t> list_ends_;  // of the runs in one list
    Growing<std::uint32_t> rows_;           // the lists, and one more to sort in
};

}  // namespace hamtarget
