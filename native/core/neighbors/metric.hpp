// Metrics: how queries and rows are compared. A metric is described here, and nowhere else in the core.
#pragma once

#include <cmath>
#include <string>

#include "../../kernels/neighbor_kernel.hpp"
#include "../errors.hpp"

namespace hamtarget {

// Sketches approximate the score of a row, -<query, row>: smaller is nearer. A metric says what is added to that, and
// how the vectors of the best rows are compared.
struct NeighborMetric {
    const char* name;
    // True if half the square of the row is added to its score.
    bool has_biases;
    // The kernel's function for each type of rows, and the sign that makes smaller sums those of nearer rows.
    NeighborKernel::Rank (NeighborKernel::*sums)[4];
    float sign;
    // Return the distance that a signed sum stands for.
    float (*distance)(float sum);
};

// Metrics that prepare vectors first, such as the cosine, have no need of an entry: Python prepares them.
inline constexpr NeighborMetric kNeighborMetrics[] = {
    {"l2", true, &NeighborKernel::squares, 1, [](float sum) { return std::sqrt(sum); }},
    {"dot", false, &NeighborKernel::products, -1, [](float sum) { return sum; }},
};

inline const NeighborMetric& neighbor_metric(const std::string& name) {
    std::string names;
    for (const NeighborMetric& metric : kNeighborMetrics) {
        if (name == metric.name) return metric;
        names += (names.empty() ? "" : ", ") + std::string(metric.name);
    }
    throw InputError("metric is '" + name + "'; expected one of " + names);
}

}  // namespace hamtarget
