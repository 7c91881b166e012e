// Query-directed probing: buckets of several tables in the order of the sum of |logit| over the bits in which their
// numbers differ from the query's (after Lv et al., Multi-Probe LSH, 2007). Likely buckets come first.
//
// The rows that a budget reads depend on which buckets are cheapest, not on the order among them. So no heap gives them
// out one by one: all sets of flipped bits within a cost are listed at once, and only where the budget ends is there
// anything to sort.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace hamtarget {

// Whole numbers in proportion to |logit|, from 1 to 2^24: sums of them are exact in any order, so that equal costs are
// equal on every machine. None is 0: without flips there is one set of cost 0, and few cost little.
inline constexpr std::uint32_t kMostFlipCost = std::uint32_t{1} << 24;

inline void flip_costs(const float* logits, std::size_t n_bits, std::uint32_t* costs) {
    float largest = 0;
    for (std::size_t bit = 0; bit < n_bits; ++bit) largest = std::max(largest, std::abs(logits[bit]));
    const double scale = largest > 0 ? kMostFlipCost / static_cast<double>(largest) : 0;
    for (std::size_t bit = 0; bit < n_bits; ++bit)
        costs[bit] = std::max(1u, static_cast<std::uint32_t>(std::abs(logits[bit]) * scale + 0.5));
}

// Bits of a bucket number that are flipped, as one number: cost (30 bits), the bits (28), how many they are (5). By
// these numbers, sets are in the order of their costs, and equal ones in that of their bits.
using FlipSet = std::uint64_t;

inline constexpr unsigned kFlipsBits = 5, kCostShift = 33;

inline std::uint32_t cost_of(FlipSet set) { return static_cast<std::uint32_t>(set >> kCostShift); }
inline std::uint32_t flipped_bits(FlipSet set) { return static_cast<std::uint32_t>(set >> kFlipsBits & 0xFFFFFFF); }

// Flip sets of the bucket numbers of one table.
class FlipSets {
  public:
    // `costs[i]`: of flipping bit i, of `length` bits (at most 28). At most `most_flips` are flipped at once.
    void reset(const std::uint32_t* costs, std::size_t length, std::size_t most_flips) {
        most_flips_ = std::min(most_flips, length);
        length_ = length;
        highest_ = 0;
        for (std::size_t bit = 0; bit < length; ++bit) {
            bits_[bit] = FlipSet{costs[bit]} << kCostShift | FlipSet{1} << (bit + kFlipsBits) | 1;
            highest_ += costs[bit];
        }
        std::sort(bits_, bits_ + length, std::greater<>());
    }

    // No set costs more.
    std::uint32_t highest() const { return highest_; }

    // Writes every set of a cost of at most `cost` to the start of `sets`, in no order, and gives how many they are.
    // Gives up, with 0, where there would be more than `most`.
    std::size_t within(std::uint32_t cost, std::size_t most, std::vector<FlipSet>& sets) const {
        const FlipSet last = (FlipSet{cost} + 1) << kCostShift;
        constexpr FlipSet kFlips = (1u << kFlipsBits) - 1;
        if (sets.empty()) sets.resize(64);
        sets[0] = 0;
        std::size_t count = 1;
        if (most_flips_ == 0) return count;
        // Each bit is added to all sets of the bits before it. Expensive bits first: the list stays short until the
        // last few, which nearly double it, and so it is written about twice in all.
        for (std::size_t i = 0; i < length_; ++i) {
            const FlipSet bit = bits_[i];
            if (bit >= last) continue;
            if (sets.size() < 2 * count) sets.resize(4 * count);
            FlipSet* const list = sets.data();
            const std::size_t before = count;
            for (std::size_t k = 0; k < before; ++k) {
                const FlipSet more = list[k] + bit;
                list[count] = more;
                count += (more < last) & ((more & kFlips) <= most_flips_);
            }
            if (count > most) return 0;
        }
        return count;
    }

  private:
    FlipSet bits_[28];  // each bit alone, the most expensive first
    std::size_t length_ = 0;
    std::size_t most_flips_ = 0;
    std::uint32_t highest_ = 0;
};

}  // namespace hamtarget
