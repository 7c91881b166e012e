// Rows that one query finds in one segment, in a list for each distance. Then only row numbers need to be sorted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../kernels/code_kernel.hpp"
#include "../array.hpp"
#include "../merge.hpp"

namespace hamtarget {

class RowLists {
  public:
    // With so many rows, the lists take up to 140 MB, of which only those that have rows are touched.
    static constexpr std::size_t kMostRows = std::size_t{1} << 20;

    // Forget everything. Distances will be at most `radius`. Each list will get at most `most_rows`, in `n_runs`
    // ascending runs, each of which must be ended.
    void reset(Distance radius, std::size_t most_rows, std::size_t n_runs) {
        if (n_lists_ != radius + 1u || most_rows + kSortSlack > room_) make_room(radius + 1u, most_rows);
        n_runs_ = n_runs;
        ends_.resize(n_runs * n_lists_);
    }

    std::size_t n_lists() const { return n_lists_; }

    // Return what a kernel fills. It may write kSortSlack rows past the last one.
    RowListsView view() { return {rows_.data(), room_, n_lists_, ends_.data()}; }

    std::size_t size(std::size_t distance) const {
        return n_runs_ ? ends_[(n_runs_ - 1) * n_lists_ + distance] : 0;
    }
    std::span<RowNumber> rows(std::size_t distance) { return {list(distance), size(distance)}; }

    // Return the rows at one distance, ascending, which are valid until another list is sorted. kSortSlack rows past
    // the end may be read.
    std::span<RowNumber> sorted(std::size_t distance, const CodeKernel& kernel) {
        const std::size_t count = size(distance);
        if (count < 2) return rows(distance);
        if (count <= kernel.most_sorted) {
            kernel.sort_rows(list(distance), count);
            return rows(distance);
        }
        list_ends_.clear();
        for (std::size_t run = 0; run < n_runs_; ++run) list_ends_.push_back(ends_[run * n_lists_ + distance]);
        return {merge_runs(list(distance), list(n_lists_), list_ends_, kernel.merge_rows), count};
    }

  private:
    RowNumber* list(std::size_t distance) { return rows_.data() + distance * room_; }

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
    std::vector<std::uint32_t> ends_;       // of each list in each run
    std::vector<std::uint32_t> list_ends_;  // of the runs of one list
    Growing<RowNumber> rows_;               // the lists, and one more to sort in
};

}  // namespace hamtarget
