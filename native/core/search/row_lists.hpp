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
        has_shared_ = false;
    }

    std::size_t n_lists() const { return n_lists_; }

    // Return what a kernel fills. It may write kSortSlack rows past the last one.
    RowListsView view() { return {rows_.data(), room_, n_lists_, ends_.data()}; }

    // Put the rows of each code in its place: kernels have filled the lists with the numbers of codes.
    void take_rows(const SharedCodes& shared, Work& work) {
        for (std::size_t distance = 0; distance < n_lists_; ++distance)
            for (const RowNumber code : rows(distance)) shared.prefetch(code);
        shared_rows_.clear();
        shared_spans_.clear();
        for (std::size_t distance = 0; distance < n_lists_; ++distance) {
            const std::size_t start = shared_rows_.size();
            for (const RowNumber code : rows(distance)) {
                work.spend(shared.list(code).size());
                shared.each_row(code, [&](RowNumber row) { shared_rows_.push(row); });
            }
            shared_spans_.push_back({start, shared_rows_.size() - start});
            // What is read past the end while a list is sorted.
            std::fill_n(shared_rows_.extend(kSortSlack), kSortSlack, RowNumber{0});
        }
        has_shared_ = true;
    }

    std::size_t size(std::size_t distance) const {
        if (has_shared_) return shared_spans_[distance].size;
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
        if (has_shared_) {
            // Rows of one code ascend.
            const RowNumber* const rows = list(distance);
            for (std::size_t i = 1; i < count; ++i)
                if (rows[i] < rows[i - 1]) list_ends_.push_back(static_cast<std::uint32_t>(i));
            list_ends_.push_back(static_cast<std::uint32_t>(count));
            shared_room_.clear();
            shared_room_.extend(count + kSortSlack);
            return {merge_runs(list(distance), shared_room_.data(), list_ends_, kernel.merge_rows), count};
        }
        for (std::size_t run = 0; run < n_runs_; ++run) list_ends_.push_back(ends_[run * n_lists_ + distance]);
        return {merge_runs(list(distance), list(n_lists_), list_ends_, kernel.merge_rows), count};
    }

  private:
    struct SharedSpan {
        std::size_t start, size;
    };

    RowNumber* list(std::size_t distance) {
        return has_shared_ ? shared_rows_.data() + shared_spans_[distance].start : rows_.data() + distance * room_;
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
    bool has_shared_ = false;               // the lists are these instead
    Growing<RowNumber> shared_rows_, shared_room_;
    std::vector<SharedSpan> shared_spans_;  // of each list
};

}  // namespace hamtarget
