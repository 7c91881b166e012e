// Sorting by merging: buckets give their rows in ascending order, so that only a few runs need to be merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../kernels/merge_two.hpp"

namespace hamtarget {

// Merge runs that lie one after another, two at a time. `ends` says where each one ends, and is used up. Return which
// of the two places has the result.
template <class T, class MergeTwo>
T* merge_runs(T* from, T* to, std::vector<std::uint32_t>& ends, MergeTwo merge) {
    while (ends.size() > 1) {
        std::size_t kept = 0;
        std::uint32_t start = 0;
        for (std::size_t i = 0; i < ends.size(); i += 2) {
            const std::uint32_t middle = ends[i], end = i + 1 < ends.size() ? ends[i + 1] : middle;
            merge(from + start, from + middle, from + end, to + start);
            ends[kept++] = start = end;
        }
        ends.resize(kept);
        std::swap(from, to);
    }
    return from;
}

}  // namespace hamtarget
