// Searches for the nearest rows: visit the nearest cells, read sketches there, compare the vectors of the best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../limits.hpp"
#include "neighbor_core.hpp"

namespace hamtarget {

struct NeighborRequest {
    const float* queries = nullptr;  // [query][dim]
    std::size_t n_queries = 0;
    std::size_t k = 1;
    std::size_t budget = 0;       // most rows whose sketch is read, for each query
    std::size_t comparisons = 0;  // most rows whose vector is compared, for each query
    // The cells that each query visits, best first; negative numbers stand for no cell. Without them, the nearest are
    // visited.
    const std::int32_t* cells = nullptr;
    std::size_t n_cells = 0;
    Limits* limits = nullptr;
};

// Arrays of [query][k]; missing rows have the id -1 and an infinite distance.
struct Neighbors {
    std::vector<std::int64_t> ids;
    std::vector<float> distances;
    std::vector<std::int64_t> costs;  // [query]: candidates, comparisons
};

Neighbors search(const NeighborCore& core, const NeighborRequest& request, std::size_t n_threads);

}  // namespace hamtarget
