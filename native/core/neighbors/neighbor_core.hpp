// An index of vectors that changes: one writer at a time adds and removes rows while others search.
//
// Each call of add makes a generation. Generations are merged so that each is several times larger than the next: there
// are few of them, and each row is copied a few times. Removed rows are marked until a merge leaves them out. A writer
// never changes what others may read; a search holds on to the parts that it began with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "../limits.hpp"
#include "generation.hpp"

namespace hamtarget {

// Vectors of one of three types: exactly one pointer is set.
struct NewVectors {
    const float* floats = nullptr;
    const std::uint8_t* uint8s = nullptr;
    const std::int8_t* int8s = nullptr;
};

using NeighborParts = std::vector<NeighborPart>;

class NeighborCore {
  public:
    // Throws InputError unless the sizes of the arrays fit.
    NeighborCore(std::size_t n_dims, const NeighborMetric& metric, RowType row_type, Array<const float> centres,
                 Array<const float> codebooks, std::size_t part_dims, Array<const float> rotation,
                 const NeighborKernel& kernel = *supported_neighbor_kernels().front());

    const NeighborShape& shape() const { return shape_; }
    const NeighborKernel& kernel() const { return *kernel_; }
    // The matrix by which rows and queries are multiplied before they are compared with centres; empty if there is
    // none.
    const Array<const float>& rotation() const { return rotation_; }
    // Multiply vectors by the rotation, if there is one.
    void rotate(const float* vectors, std::size_t count, float* rotated) const;

    // Return what there is now. It stays as it is while the caller holds it.
    std::shared_ptr<const NeighborParts> parts() const {
        const std::lock_guard lock(parts_mutex_);
        return parts_;
    }
    std::size_t size() const;

    // Each change applies to all of its rows, or to none if it throws (InputError, std::bad_alloc).
    void add(const std::int64_t* ids, std::size_t n_rows, const NewVectors& vectors, std::size_t n_threads);
    // Remove the rows that are there, and return their number.
    std::size_t remove(const std::int64_t* ids, std::size_t count);
    // Write 1 for each of the ids that is there, and 0 for the others.
    void contains(const std::int64_t* ids, std::size_t count, std::uint8_t* found);
    // Write the vectors of rows as they are kept, [id][dim]. Throws InputError if one of the ids is not there.
    void get(const std::int64_t* ids, std::size_t count, float* vectors);
    // Put all rows into one generation, without the removed ones, and return it.
    std::shared_ptr<const Generation> compact();
    // Put a generation that came out of a file in the place of everything.
    void reset(Generation generation);

    // Return all ids, ascending.
    std::vector<std::int64_t> ids() const;

  private:
    void publish(NeighborParts parts);
    NewRows encode(const std::int64_t* ids, std::size_t n_rows, const NewVectors& vectors, std::size_t n_threads);

    NeighborShape shape_;
    Array<const float> rotation_;
    const NeighborKernel* kernel_;
    std::mutex write_mutex_;
    std::unique_ptr<const PackedCentres> packed_centres_;  // made by the first add
    mutable std::mutex parts_mutex_;
    std::shared_ptr<const NeighborParts> parts_;
};

// For each row, the nearest of the centres and the square of the distance.
void nearest_centres(const NeighborKernel& kernel, const float* rows, std::size_t n_rows, const float* centres,
                     std::size_t n_centres, std::size_t n_dims, std::size_t n_threads, std::int32_t* nearest,
                     float* squares);

}  // namespace hamtarget
