// Cells: which cell a row belongs to, and which cells a query visits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/neighbor_kernel.hpp"
#include "../array.hpp"

namespace hamtarget {

// Centres by float32, in blocks of 16, for NeighborKernel::nearest.
class PackedCentres {
  public:
    PackedCentres(const float* centres, std::size_t n_centres, std::size_t n_dims);

    // Find the nearest centre by Euclidean distance of each row; write norm / 2 - product as its score.
    void nearest(const NeighborKernel& kernel, const float* rows, std::size_t n_rows, std::int32_t* best,
                 float* scores) const;

  private:
    std::size_t n_dims_, n_blocks_;
    std::vector<float> elements_, norms_;
};

// A cell that a query visits. The score is -<query, centre>, and half the square of the centre where rows have biases.
struct VisitedCell {
    std::int32_t cell;
    float score;
};

class Cells {
  public:
    Cells(Array<const float> centres, std::size_t n_cells, std::size_t n_dims, bool has_biases);

    std::size_t size() const { return n_cells_; }
    std::size_t n_dims() const { return n_dims_; }
    const Array<const float>& centres() const { return centres_; }
    const float* centre(std::size_t cell) const { return centres_.data() + cell * n_dims_; }
    // Count the bytes of everything.
    std::size_t n_bytes() const;

    // Write the scores of all cells, roughly, [query][n_scores()].
    void rough_scores(const NeighborKernel& kernel, const float* queries, std::size_t n_queries, float* scores) const;
    std::size_t n_scores() const { return 16 * n_blocks_; }

    // Append at least `count` cells, the best first by rough scores; fewer only if there are no more. What 8 bits lose is
    // far less than what sketches lose.
    void choose(const NeighborKernel& kernel, const float* rough_scores, std::size_t count,
                std::vector<std::uint32_t>& room, std::vector<VisitedCell>& chosen) const;

    float score(const NeighborKernel& kernel, const float* query, std::size_t cell) const;

  private:
    void sort_into(const float* rough_scores, const std::uint32_t* cells, std::size_t n_cells,
                   std::vector<VisitedCell>& chosen) const;

    std::size_t n_cells_, n_dims_, n_blocks_, n_fours_;
    Array<const float> centres_;
    std::vector<float> biases_;           // exact, by cell
    std::vector<std::int8_t> elements_;   // Int8Centres; the mean of all centres is taken away
    std::vector<float> norms_, sums_;     // by cell
    float scale_ = 1;                     // of the elements
};

}  // namespace hamtarget
