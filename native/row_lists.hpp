// Rows that one query finds in one segment, in a list for each distance: then only row numbers are left to be sorted.
#pragma once

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
    // Distances 0 to 15, and so many rows: the lists take up to 140 MB, of which only what has rows is touched.
    static constexpr std::size_t kMostLists = 16;
    static constexpr std::size_t kMostRows = std::size_t{1} << 20;

    // Forgets everything. Distances will be at most `radius`; each list will get at most `most_rows`, in `n_runs`
    // ascending runs, of which each has to be ended.
    void reset(Distance radius, std::size_t most_rows, std::size_t n_runs) {
        if (n_lists_ != radius + 1u || most_rows + kSortSlack > room_) make_room(radius + 1u, most_rows);
        n_runs_ = n_runs;
        ends_.resize(n_runs * n_lists_);
    }

    std::size_t n_lists() const { return n_lists_; }

    // Rows are written here, and up to kSortSlack more.
    std::uint32_t* list(std::size_t distance) { return rows_.data() + distance * room_; }
    void end_run(std::size_t run, std::size_t distance, const std::uint32_t* end) {
        ends_[run * n_lists_ + distance] = static_cast<std::uint32_t>(end - list(distance));
    }

    std::size_t size(std::size_t distance) const {
        return n_runs_ ? ends_[(n_runs_ - 1) * n_lists_ + distance] : 0;
    }
    std::span<std::uint32_t> rows(std::size_t distance) { return {list(distance), size(distance)}; }

    // The rows at one distance, ascending, until another list is sorted. May be read up to kSortSlack past the end.
    std::span<std::uint32_t> sorted(std::size_t distance, const Kernel& kernel) {
        const std::size_t count = size(distance);
        if (count < 2 || sort_few_rows(kernel, list(distance), count)) return rows(distance);
        list_ends_.clear();
        for (std::size_t run = 0; run < n_runs_; ++run) list_ends_.push_back(ends_[run * n_lists_ + distance]);
        return {merge_rows(kernel, list(distance), list(n_lists_), list_ends_), count};
    }

  private:
    void make_room(std::size_t n_lists, std::size_t most_rows) {
        n_lists_ = n_lists;
        // An odd number of lines: lists that begin at the same place of a page are in each other's way in the cache.
        room_ = (2 * most_rows + kSortSlack) / 32 * 32 + 48;
        rows_.clear();
        rows_.reserve((n_lists_ + 1) * room_);
    }

    std::size_t n_lists_ = 0;
    std::size_t n_runs_ = 0;
    std::size_t room_ = 0;                  // of a list
    std::vector<std::uint32_t> ends_;       // of each run in each list
    std::vector<std::uint32_t> list_ends_;  // of the runs in one list
    Growing<std::uint32_t> rows_;           // the lists, and one more to sort in
};

}  // namespace hamtarget
