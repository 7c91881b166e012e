// Generations: rows in the order of their cells, never changed once they are built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../../kernels/codes.hpp"
#include "../array.hpp"
#include "cells.hpp"
#include "metric.hpp"
#include "sketcher.hpp"

namespace hamtarget {

// What all generations of an index share.
struct NeighborShape {
    const NeighborMetric& metric;
    RowType row_type;
    Cells cells;
    Sketcher sketcher;

    std::size_t n_dims() const { return cells.n_dims(); }
    std::size_t vector_bytes() const {
        switch (row_type) {
            case RowType::kFloat16: return 2 * n_dims();
            case RowType::kFloat32: return 4 * n_dims();
            default: return n_dims();
        }
    }
    bool has_scales() const { return row_type == RowType::kInt8; }
};

// Ids in 4 bytes each if they fit.
class IdArray {
  public:
    IdArray() = default;
    explicit IdArray(const std::vector<std::int64_t>& ids);
    IdArray(Array<const std::uint32_t> small, Array<const std::int64_t> large);

    std::size_t size() const { return large_.empty() ? small_.size() : large_.size(); }
    std::int64_t operator[](std::size_t row) const {
        return large_.empty() ? static_cast<std::int64_t>(small_[row]) : large_[row];
    }
    std::int64_t lowest() const { return lowest_; }
    std::int64_t highest() const { return highest_; }
    std::size_t n_bytes() const { return small_.n_bytes() + large_.n_bytes(); }
    const Array<const std::uint32_t>& small() const { return small_; }
    const Array<const std::int64_t>& large() const { return large_; }

  private:
    void find_range();

    Array<const std::uint32_t> small_;
    Array<const std::int64_t> large_;
    std::int64_t lowest_ = 0, highest_ = -1;
};

// Rows of cells, one cell after another.
struct Generation {
    std::size_t n_rows = 0;
    Array<const std::uint32_t> offsets;  // of rows, by cell and one more
    Array<const std::uint32_t> blocks;   // of sketches, by cell and one more
    Array<const std::uint8_t> sketches;
    Array<const float> cell_biases;  // the smallest bias of a row, less that of the centre
    float bias_step = 0;             // of the bits of the bias
    Array<const std::uint8_t> vectors;
    Array<const float> scales;  // of int8 rows
    IdArray ids;

    std::size_t n_bytes() const {
        return offsets.n_bytes() + blocks.n_bytes() + sketches.n_bytes() + cell_biases.n_bytes() + vectors.n_bytes() +
               scales.n_bytes() + ids.n_bytes();
    }
};

// Rows to be built, in any order.
struct NewRows {
    std::vector<std::int64_t> ids;
    std::vector<std::int32_t> cells;
    std::vector<std::uint8_t> values;   // [row][part]
    std::vector<std::uint8_t> vectors;  // [row][vector_bytes]
    std::vector<float> scales;

    std::size_t size() const { return ids.size(); }
    void resize(const NeighborShape& shape, std::size_t n_rows);
};

std::shared_ptr<const Generation> build_generation(const NeighborShape& shape, const NeighborKernel& kernel,
                                                   const NewRows& rows);

// Marks of deleted rows, one bit each; none if no row is deleted.
struct DeletedRows {
    std::shared_ptr<const std::vector<std::uint64_t>> marks;
    std::size_t count = 0;

    bool has(std::size_t row) const { return marks && ((*marks)[row / 64] >> row % 64 & 1); }
};

// The rows of a generation in the order of their ids, by which a writer finds few ids among many rows.
class RowsById {
  public:
    explicit RowsById(const IdArray& ids);

    // Return the row with an id, or the number of rows if there is none.
    std::size_t find(const IdArray& ids, std::int64_t id) const;
    std::size_t n_bytes() const { return rows_.size() * sizeof(std::uint32_t); }

  private:
    std::vector<std::uint32_t> rows_;
};

struct NeighborPart {
    std::shared_ptr<const Generation> rows;
    DeletedRows deleted;
    std::shared_ptr<const RowsById> by_id = nullptr;  // made when a writer first needs it

    std::size_t n_live() const { return rows->n_rows - deleted.count; }
};

// Return one generation with all rows of the parts that are not deleted.
std::shared_ptr<const Generation> merge_parts(const NeighborShape& shape, const NeighborKernel& kernel,
                                              const std::vector<NeighborPart>& parts);

// Take over arrays of a file: all of a generation but `blocks`, which follow from the offsets. Throw InputError unless
// the arrays fit the shape and each other, so that no search reads outside of them.
void check_generation(const NeighborShape& shape, Generation& generation);

}  // namespace hamtarget
