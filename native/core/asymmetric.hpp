// Asymmetric distances of one query. They order rows better than Hamming distances do, for a few instructions a row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../kernels/code_kernel.hpp"

namespace hamtarget {

// Units of a query's largest logit: a sum of all bits fits 16 bits.
inline std::uint32_t most_asymmetric_units(std::size_t n_bytes) { return n_bytes <= 128 ? 63 : 15; }

class AsymmetricDistance {
  public:
    void set_query(const float* logits, const std::uint8_t* code, std::size_t n_bytes) {
        tables_.n_bytes = n_bytes;
        tables_.query = code;
        float largest = 0;
        for (std::size_t bit = 0; bit < 8 * n_bytes; ++bit) largest = std::max(largest, std::abs(logits[bit]));
        const std::uint32_t most = most_asymmetric_units(n_bytes);
        const double scale = largest > 0 ? most / static_cast<double>(largest) : 0;
        unit_ = largest / static_cast<float>(most);
        highest_ = 0;
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            std::uint8_t units[8];
            for (std::size_t bit = 0; bit < 8; ++bit) {
                units[bit] = static_cast<std::uint8_t>(std::abs(logits[8 * byte + bit]) * scale + 0.5);
                highest_ += units[bit];
            }
            fill(tables_.low + 16 * byte, units);
            fill(tables_.high + 16 * byte, units + 4);
        }
    }

    // Return the size of a unit, in logits.
    float unit() const { return unit_; }
    // Return the largest distance that a code can have.
    std::size_t highest() const { return highest_; }

    const AsymmetricTables& tables() const { return tables_; }

  private:
    static void fill(std::uint8_t* table, const std::uint8_t* units) {
        table[0] = 0;
        for (unsigned bit = 0; bit < 4; ++bit)
            for (unsigned lower = 0; lower < 1u << bit; ++lower)
                table[1u << bit | lower] = static_cast<std::uint8_t>(table[lower] + units[bit]);
    }

    AsymmetricTables tables_;
    std::size_t highest_ = 0;
    float unit_ = 0;
};

}  // namespace hamtarget
