// Rows that one query finds in one segment, in a list for each distance. Then only row numbers need to be sorted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../kernels/code_kernel.hpp"
#include "../array.hpp"
#include "../limits.hpp"
#include "../merge.hpp"
#include "../shared_codes.hpp"

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

    // Put the rows of each code in its place, sorted: kernels have filled the lists with the numbers of codes. This is
    // apart, so that lists of rows stay as fast as they are.
    [[gnu::noinline]] void take_rows(const SharedCodes& shared, const CodeKernel& kernel, Work& work) {
        for (std::size_t distance = 0; distance < n_lists_; ++distance)
            for (const RowNumber code : rows(distance)) shared.prefetch(code);
        shared_rows_.clear();
        shared_ends_.clear();
        std::size_t longest = 0;
        for (std::size_t distance = 0; distance < n_lists_; ++distance) {
            const std::size_t start = shared_rows_.size();
            for (const RowNumber code : rows(distance)) {
                work.spend(shared.list(code).size());
                shared.each_row(code, [&](RowNumber row) { shared_rows_.push(row); });
            }
            shared_ends_.push_back(shared_rows_.size());
            longest = std::max(longest, shared_rows_.size() - start);
        }
        if (longest + kSortSlack > room_) make_room(n_lists_, longest);
        n_runs_ = 1;
        for (std::size_t distance = 0, start = 0; distance < n_lists_; start = shared_ends_[distance++]) {
            const std::size_t count = shared_ends_[distance] - start;
            std::copy_n(shared_rows_.data() + start, count, list(distance));
            ends_[distance] = static_cast<std::uint32_t>(count);
            if (count > kernel.most_sorted) sort_runs(distance, kernel);
        }
    }

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

    // Sort a list whose runs are not known: rows of one code ascend.
    void sort_runs(std::size_t distance, const CodeKernel& kernel) {
        RowNumber* const rows = list(distance);
        const std::size_t count = ends_[distance];
        list_ends_.clear();
        for (std::size_t i = 1; i < count; ++i)
            if (rows[i] < rows[i - 1]) list_ends_.push_back(static_cast<std::uint32_t>(i));
        list_ends_.push_back(static_cast<std::uint32_t>(count));
        const RowNumber* const sorted = merge_runs(rows, list(n_lists_), list_ends_, kernel.merge_rows);
        if (sorted != rows) std::copy_n(sorted, count, rows);
    }

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
    Growing<RowNumber> shared_rows_;        // of the codes in all lists
    std::vector<std::size_t> shared_ends_;  // of each list in them
};

}  // namespace hamtarget
