// Sorted rows of one segment become ids and distances of a result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "../../kernels/code_kernel.hpp"
#include "../hits.hpp"

namespace hamtarget {

// Appends rows of one query to a result, list by list.
class ResultWriter {
  public:
    // Begin a result of at most `most` rows.
    ResultWriter(const CodeKernel& kernel, const IdColumn& column, Hits& hits, std::size_t most)
        : kernel_(kernel),
          column_(column),
          hits_(hits),
          before_(hits.ids.size()),
          count_(before_),
          ids_(hits.ids.extend(most + kWriteSlack)),
          distances_(hits.distances.extend(most + kWriteSlack)) {}

    // Append rows at one distance. 7 rows past the last one may be read.
    void write(std::span<const RowNumber> rows, Distance distance) {
        if (column_.is_consecutive()) {
            kernel_.write_rows(rows.data(), rows.size(), column_.base(), distance, ids_, distances_);
        } else {
            for (std::size_t i = 0; i < rows.size(); ++i) ids_[i] = column_[rows[i]];
            std::fill_n(distances_, rows.size(), distance);
        }
        ids_ += rows.size();
        distances_ += rows.size();
        count_ += rows.size();
    }

    // End the result, and return the number of its rows. Nothing can be written after that.
    std::size_t finish() {
        hits_.ids.shrink(count_);
        hits_.distances.shrink(count_);
        return count_ - before_;
    }

  private:
    const CodeKernel& kernel_;
    const IdColumn& column_;
    Hits& hits_;
    const std::size_t before_;  // hits of earlier queries
    std::size_t count_;
    Id* ids_;
    Distance* distances_;
};

}  // namespace hamtarget
