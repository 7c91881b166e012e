// Query-directed probing: buckets of several tables in the order of the sum of |logit| over the bits in which their
// numbers differ from the query's (after Lv et al., Multi-Probe LSH, 2007). Likely buckets come first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace hamtarget {

class BucketOrder {
  public:
    struct Bucket {
        std::uint32_t table;
        std::uint32_t flipped;  // bits of the bucket number
    };

    void clear() {
        tables_.clear();
        heap_.clear();
    }

    // The next table: what flipping each bit of its bucket numbers costs, and how many may be flipped at once.
    void add_table(std::vector<float> weights, std::size_t most_flips) {
        Sorted table;
        table.most_flips = most_flips;
        table.bits.resize(weights.size());
        std::iota(table.bits.begin(), table.bits.end(), 0u);
        std::stable_sort(table.bits.begin(), table.bits.end(),
                         [&](std::uint32_t left, std::uint32_t right) { return weights[left] < weights[right]; });
        for (const std::uint32_t bit : table.bits) table.weights.push_back(weights[bit]);
        tables_.push_back(std::move(table));
        push({0.0, static_cast<std::uint32_t>(tables_.size() - 1), 0, 0});
    }

    // The next bucket, or nothing after the last one.
    std::optional<Bucket> next() {
        if (heap_.empty()) return std::nullopt;
        std::pop_heap(heap_.begin(), heap_.end());
        const State state = heap_.back();
        heap_.pop_back();
        const Sorted& table = tables_[state.table];
        // Each set of bits has one parent, which costs no more: it without its last bit, or with the last bit moved
        // one place down. So nothing comes twice, and the heap grows by at most one a bucket.
        const std::size_t after = state.bits ? std::bit_width(state.bits) : 0;
        if (after < table.bits.size()) {
            const double added = table.weights[after];
            if (state.flips < table.most_flips)
                push({state.cost + added, state.table, state.flips + 1, state.bits | 1u << after});
            if (state.bits) {
                const std::uint32_t last = 1u << (after - 1);
                push({state.cost - table.weights[after - 1] + added, state.table, state.flips,
                      (state.bits ^ last) | 1u << after});
            }
        }
        std::uint32_t flipped = 0;
        for (std::uint32_t bits = state.bits; bits; bits &= bits - 1)
            flipped |= 1u << table.bits[std::countr_zero(bits)];
        return Bucket{state.table, flipped};
    }

  private:
    struct Sorted {
        std::vector<float> weights;       // ascending
        std::vector<std::uint32_t> bits;  // of the bucket number, in that order
        std::size_t most_flips;
    };

    struct State {
        double cost;
        std::uint32_t table;
        std::uint32_t flips;
        std::uint32_t bits;  // bit i: the bit with the i-th smallest weight is flipped

        // The cheapest is on top of the heap; equal ones come in an order that does not depend on the heap.
        friend bool operator<(const State& left, const State& right) {
            if (left.cost != right.cost) return left.cost > right.cost;
            return left.table != right.table ? left.table > right.table : left.bits > right.bits;
        }
    };

    void push(const State& state) {
        heap_.push_back(state);
        std::push_heap(heap_.begin(), heap_.end());
    }

    std::vector<Sorted> tables_;
    std::vector<State> heap_;
};

}  // namespace hamtarget
