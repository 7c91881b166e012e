#include "sketcher.hpp"

#include <algorithm>
#include <cmath>

namespace hamtarget {

namespace {

constexpr float kMostEntry = 255;

// NaN, where numbers overflow, becomes 0.
std::uint8_t entry_of(float value) {
    return value > 0 ? static_cast<std::uint8_t>(std::min(value + 0.5f, kMostEntry)) : 0;
}

}  // namespace

Sketcher::Sketcher(Array<const float> codebooks, std::size_t n_parts, std::size_t part_dims, bool has_bias)
    : layout_{n_parts, has_bias},
      part_dims_(part_dims),
      codebooks_(std::move(codebooks)),
      entries_(n_parts * part_dims * kPartEntries),
      norms_(n_parts * kPartEntries) {
    for (std::size_t part = 0; part < n_parts; ++part)
        for (std::size_t entry = 0; entry < kPartEntries; ++entry)
            for (std::size_t d = 0; d < part_dims; ++d) {
                const float value = codebooks_[(part * kPartEntries + entry) * part_dims + d];
                entries_[(part * part_dims + d) * kPartEntries + entry] = value;
                norms_[part * kPartEntries + entry] += value * value / 2;
            }
}

void Sketcher::cell_biases(const NeighborKernel& kernel, const float* padded_centre, float* biases) const {
    kernel.part_products(padded_centre, layout_.n_parts, part_dims_, entries_.data(), biases);
    for (std::size_t i = 0; i < norms_.size(); ++i) biases[i] += norms_[i];
}

float Sketcher::fill(const NeighborKernel& kernel, const float* padded_query, const float* bias_steps,
                     std::size_t n_steps, std::vector<float>& room, std::vector<QueryTables>& tables) const {
    const std::size_t n_parts = layout_.n_parts, n_groups = layout_.n_groups();
    room.resize(n_parts * kPartEntries);
    kernel.part_products(padded_query, n_parts, part_dims_, entries_.data(), room.data());
    const float widest = kernel.widest(room.data(), n_parts);
    float widest_step = 0;
    for (std::size_t i = 0; i < n_steps; ++i) widest_step = std::max(widest_step, bias_steps[i]);
    float scale = kMostEntry / widest;
    // The high bits of the bias count 16 times as much as the low ones. They span more than other parts; weights help.
    constexpr float kHighSpan = 15 * 16;
    scale = std::min(scale, kMostWeight * kMostEntry / (kHighSpan * widest_step));
    if (!(scale > 0 && scale < 1e30f)) scale = 1;
    tables.resize(n_steps);
    for (std::size_t i = 0; i < tables.size(); ++i) {
        auto& entries = tables[i].entries_;
        auto& weights = tables[i].weights_;
        if (i > 0) {
            tables[i] = tables[0];
        } else {
            // What fills up the last group stays 0.
            entries.resize(n_groups * kGroupTable);
            weights.resize(n_groups * kGroupParts, 1);
            // A large product makes a small score.
            kernel.quantise(room.data(), n_parts, scale, entries.data());
        }
        if (!layout_.has_bias) continue;
        for (std::size_t high = 0; high < 2; ++high) {
            const std::size_t part = n_parts + (high ? 0 : 1);
            const float unit = bias_steps[i] * scale * (high ? 16 : 1);
            const float wanted = std::ceil(15 * unit / kMostEntry);
            const float weight = wanted > 1 ? std::min(wanted, static_cast<float>(kMostWeight)) : 1;
            weights[part] = static_cast<std::uint8_t>(weight);
            for (std::size_t entry = 0; entry < kPartEntries; ++entry)
                entries[part * kPartEntries + entry] = entry_of(static_cast<float>(entry) * unit / weight);
        }
    }
    return scale;
}

}  // namespace hamtarget
