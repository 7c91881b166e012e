// Sketches: vectors in 4-bit parts, and the tables by which a query reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/neighbor_kernel.hpp"
#include "../array.hpp"

namespace hamtarget {

// The layout of sketches. Rows with a bias have two parts more, its high and low bits.
struct SketchLayout {
    std::size_t n_parts = 0;  // without the bias
    bool has_bias = false;

    std::size_t n_groups() const { return (n_parts + (has_bias ? 2 : 0) + kGroupParts - 1) / kGroupParts; }
    std::size_t block_bytes() const { return n_groups() * kGroupBytes; }

    // Write a part into a block that was zero.
    void put(std::uint8_t* block, std::size_t row, std::size_t part, std::uint8_t value) const {
        const auto [byte, shift] = place(row, part);
        block[byte] = static_cast<std::uint8_t>(block[byte] | value << shift);
    }
    std::uint8_t get(const std::uint8_t* block, std::size_t row, std::size_t part) const {
        const auto [byte, shift] = place(row, part);
        return block[byte] >> shift & 15;
    }

  private:
    struct Place {
        std::size_t byte;
        int shift;
    };
    Place place(std::size_t row, std::size_t part) const {
        const std::size_t group = part / kGroupParts, lane = row * kGroupParts + part % kGroupParts;
        const std::size_t begin = group / 2 * 2 * kGroupBytes;
        if (group % 2 == 0 && group + 1 == n_groups()) return {begin + lane % kGroupBytes, lane < kGroupBytes ? 0 : 4};
        return {begin + lane, group % 2 ? 4 : 0};
    }
};

// The tables of one query for the rows of one generation.
class QueryTables {
  public:
    SketchTables view() const { return {entries_.data(), weights_.data(), weights_.size() / kGroupParts}; }

  private:
    friend class Sketcher;
    std::vector<std::uint8_t> entries_, weights_;
};

class Sketcher {
  public:
    // The codebooks are [part][16][dims of a part].
    Sketcher(Array<const float> codebooks, std::size_t n_parts, std::size_t part_dims, bool has_bias);

    const SketchLayout& layout() const { return layout_; }
    std::size_t part_dims() const { return part_dims_; }
    const Array<const float>& codebooks() const { return codebooks_; }
    std::size_t n_bytes() const { return codebooks_.n_bytes() + sizeof(float) * (entries_.size() + norms_.size()); }
    // Dimensions of vectors that were filled up with zeros.
    std::size_t padded_dims() const { return layout_.n_parts * part_dims_; }

    void sketch(const NeighborKernel& kernel, const float* padded_residual, std::uint8_t* values) const {
        kernel.sketch(padded_residual, layout_.n_parts, part_dims_, entries_.data(), norms_.data(), values);
    }

    // Biases of values of parts for rows of a cell: <centre, entry> + |entry|^2 / 2, as [part][entry].
    void cell_biases(const NeighborKernel& kernel, const float* padded_centre, float* biases) const;

    // Fill the tables of a query, one for each step of the bias. Return the scale: a sum of table entries is that many
    // times the score that it stands for, but for a constant.
    float fill(const NeighborKernel& kernel, const float* padded_query, const float* bias_steps, std::size_t n_steps,
               std::vector<float>& room, std::vector<QueryTables>& tables) const;

  private:
    SketchLayout layout_;
    std::size_t part_dims_;
    Array<const float> codebooks_;
    std::vector<float> entries_;  // [part][dim][16]
    std::vector<float> norms_;    // [part][16]: half of squares
};

}  // namespace hamtarget
