// Building segments from rows in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "segment.hpp"

namespace hamtarget {

// Return the numbers 0 to count - 1 in the order of the ids, or nothing if the ids ascend as they are.
std::vector<std::uint32_t> id_order(const Id* ids, std::size_t count);

// Build a segment of these rows, whose ids are all different. `order` is that of their ids.
Segment build_segment(const Layout& layout, const RowsView& source, const std::vector<std::uint32_t>& order);

}  // namespace hamtarget
