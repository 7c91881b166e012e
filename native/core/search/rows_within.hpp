// A linear scan of codes that no index holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../../kernels/code_kernel.hpp"

namespace hamtarget {

struct RowsWithin {
    std::vector<std::uint32_t> rows;
    std::vector<Distance> distances;
};

// Find the rows within `radius` of a query, in the order of the rows.
inline RowsWithin rows_within(const CodeKernel& kernel, const std::uint8_t* query, Codes codes, Distance radius) {
    RowsWithin result;
    const auto room = std::make_unique<KernelRoom>();
    for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
        const Codes block = codes.slice(start, std::min(kBlockRows, codes.n_rows - start));
        const std::size_t count = kernel.within(query, block, radius, room->positions, room->distances);
        for (std::size_t i = 0; i < count; ++i) {
            result.rows.push_back(static_cast<std::uint32_t>(start + room->positions[i]));
            result.distances.push_back(room->distances[i]);
        }
    }
    return result;
}

}  // namespace hamtarget
