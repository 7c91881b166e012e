// Query-directed probing: buckets of several tables in the order of the sum of |logit| over the bits in which their
// numbers differ from the query's (after Lv et al., Multi-Probe LSH, 2007). Likely buckets come first.
//
// The rows that a budget reads depend on which buckets are cheapest, not on the order among them. So no heap gives them
// out one by one: all sets of flipped bits within a cost are listed at once, and only those at the end of the budget
// need to be sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "../../kernels/codes.hpp"
#include "../limits.hpp"

namespace hamtarget {

// Costs are whole numbers in proportion to |logit|, from 1 to 2^24: sums of them are exact in any order, so that equal
// costs are equal on every machine. No cost is 0: only the set without flips costs nothing, and few sets cost little.
using FlipCost = std::uint32_t;

inline constexpr FlipCost kMostFlipCost = FlipCost{1} << 24;

inline void flip_costs(const float* logits, std::size_t n_bits, FlipCost* costs) {
    float largest = 0;
    for (std::size_t bit = 0; bit < n_bits; ++bit) largest = std::max(largest, std::abs(logits[bit]));
    const double scale = largest > 0 ? kMostFlipCost / static_cast<double>(largest) : 0;
    for (std::size_t bit = 0; bit < n_bits; ++bit)
        costs[bit] = std::max(1u, static_cast<FlipCost>(std::abs(logits[bit]) * scale + 0.5));
}

// Bits of a bucket number that are flipped, as one number: their cost (30 bits), the bits (28), how many they are (5).
// Sets are ordered by cost, and sets of equal cost by their bits.
enum class FlipSet : std::uint64_t {};

inline constexpr unsigned kFlipsBits = 5, kCostShift = 33;

inline FlipCost cost_of(FlipSet set) { return static_cast<FlipCost>(raw(set) >> kCostShift); }
inline std::uint32_t flipped_bits(FlipSet set) {
    return static_cast<std::uint32_t>(raw(set) >> kFlipsBits & 0xFFFFFFF);
}

// Flip sets of the bucket numbers of one table.
class FlipSets {
  public:
    // Begin with bucket numbers of `length` bits (at most 28). Flipping bit i costs `costs[i]`. At most `most_flips`
    // bits are flipped at once.
    void reset(const FlipCost* costs, std::size_t length, std::size_t most_flips) {
        most_flips_ = std::min(most_flips, length);
        length_ = length;
        highest_ = 0;
        for (std::size_t bit = 0; bit < length; ++bit) {
            bits_[bit] = FlipSet{std::uint64_t{costs[bit]} << kCostShift | std::uint64_t{1} << (bit + kFlipsBits) | 1};
            highest_ += costs[bit];
        }
        std::sort(bits_, bits_ + length, std::greater<>());
    }

    // Return the cost of flipping all bits. No set costs more.
    FlipCost highest() const { return highest_; }

    // Write every set that costs at most `cost` to the start of `sets`, in no order, and return their number. Return 0
    // if there would be more than `most`.
    std::size_t within(FlipCost cost, std::size_t most, std::vector<FlipSet>& sets,
                       Work& work) const {
        const FlipSet last{(std::uint64_t{cost} + 1) << kCostShift};
        constexpr std::uint64_t kFlips = (1u << kFlipsBits) - 1;
        if (sets.empty()) sets.resize(64);
        sets[0] = FlipSet{0};
        std::size_t count = 1;
        if (most_flips_ == 0) return count;
        // Add each bit to all sets of the bits before it, expensive bits first. The list stays short until the last few
        // bits, each of which nearly doubles it, so it is written about twice in all.
        for (std::size_t i = 0; i < length_; ++i) {
            const FlipSet bit = bits_[i];
            if (bit >= last) continue;
            if (sets.size() < 2 * count) sets.resize(4 * count);
            FlipSet* const list = sets.data();
            const std::size_t before = count;
            work.spend(before);
            for (std::size_t k = 0; k < before; ++k) {
                const FlipSet more{raw(list[k]) + raw(bit)};
                list[count] = more;
                count += (more < last) & ((raw(more) & kFlips) <= most_flips_);
            }
            if (count > most) return 0;
        }
        return count;
    }

  private:
    FlipSet bits_[28];  // each bit alone, the most expensive first
    std::size_t length_ = 0;
    std::size_t most_flips_ = 0;
    FlipCost highest_ = 0;
};

}  // namespace hamtarget
