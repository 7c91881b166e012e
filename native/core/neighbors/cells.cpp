#include "cells.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../../kernels/inline.hpp"

namespace hamtarget {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Numbers that overflow are as good as infinite; comparisons need an order.
float ordered(float score) { return std::isnan(score) ? kInfinity : score; }

float product(const float* a, const float* b, std::size_t n) {
    float lanes[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (std::size_t lane = 0; lane < 16; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
    for (; i < n; ++i) lanes[i % 16] += a[i] * b[i];
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
}

}  // namespace

PackedCentres::PackedCentres(const float* centres, std::size_t n_centres, std::size_t n_dims)
    : n_dims_(n_dims),
      n_blocks_((n_centres + 15) / 16),
      elements_(n_blocks_ * 16 * n_dims),
      norms_(n_blocks_ * 16, kInfinity) {
    for (std::size_t c = 0; c < n_centres; ++c) {
        const float* centre = centres + c * n_dims;
        for (std::size_t d = 0; d < n_dims; ++d) elements_[(c / 16 * n_dims + d) * 16 + c % 16] = centre[d];
        norms_[c] = product(centre, centre, n_dims) / 2;
    }
}

void PackedCentres::nearest(const NeighborKernel& kernel, const float* rows, std::size_t n_rows, std::int32_t* best,
                            float* scores) const {
    // As many centres as the nearest cache holds, for as many rows as a call brings.
    const std::size_t step = std::max<std::size_t>(1, (std::size_t{256} << 10) / (n_dims_ * 16 * sizeof(float)));
    std::vector<std::int32_t> some_best(n_rows);
    std::vector<float> some_scores(n_rows);
    for (std::size_t first = 0; first < n_blocks_; first += step) {
        kernel.nearest(rows, n_rows, n_dims_, elements_.data() + first * 16 * n_dims_, norms_.data() + first * 16,
                       std::min(step, n_blocks_ - first), some_best.data(), some_scores.data());
        for (std::size_t row = 0; row < n_rows; ++row)
            if (first == 0 || some_scores[row] < scores[row]) {
                scores[row] = some_scores[row];
                best[row] = some_best[row] + static_cast<std::int32_t>(first * 16);
            }
    }
}

Cells::Cells(Array<const float> centres, std::size_t n_cells, std::size_t n_dims, bool has_biases)
    : n_cells_(n_cells),
      n_dims_(n_dims),
      n_blocks_((n_cells + 15) / 16),
      n_fours_((n_dims + 3) / 4),
      centres_(std::move(centres)),
      biases_(n_cells, 0.0f),
      elements_(n_blocks_ * n_fours_ * 64),
      norms_(n_blocks_ * 16, kInfinity),
      sums_(n_blocks_ * 16, 0.0f) {
    std::vector<double> sums(n_dims);
    for (std::size_t c = 0; c < n_cells; ++c)
        for (std::size_t d = 0; d < n_dims; ++d) sums[d] += centre(c)[d];
    std::vector<float> mean(n_dims);
    for (std::size_t d = 0; d < n_dims; ++d) mean[d] = static_cast<float>(sums[d] / static_cast<double>(n_cells));
    float most = 0;
    for (std::size_t c = 0; c < n_cells; ++c)
        for (std::size_t d = 0; d < n_dims; ++d) most = std::max(most, std::abs(centre(c)[d] - mean[d]));
    scale_ = most > 0 && most < kInfinity ? most / 127 : 1;
    for (std::size_t c = 0; c < n_cells; ++c) {
        if (has_biases) biases_[c] = ordered(product(centre(c), centre(c), n_dims) / 2);
        std::int8_t* block = elements_.data() + c / 16 * n_fours_ * 64;
        std::int32_t sum = 0;
        for (std::size_t d = 0; d < n_dims; ++d) {
            const float scaled = std::clamp((centre(c)[d] - mean[d]) / scale_, -127.0f, 127.0f);
            const auto element = static_cast<std::int8_t>(std::lround(std::isnan(scaled) ? 0.0f : scaled));
            block[d / 4 * 64 + c % 16 * 4 + d % 4] = element;
            sum += element;
        }
        norms_[c] = biases_[c];
        sums_[c] = static_cast<float>(sum) * scale_;
    }
}

std::size_t Cells::n_bytes() const {
    return centres_.n_bytes() + elements_.size() + sizeof(float) * (biases_.size() + norms_.size() + sums_.size());
}

void Cells::rough_scores(const NeighborKernel& kernel, const float* queries, std::size_t n_queries,
                         float* scores) const {
    std::vector<std::uint8_t> elements(n_queries * n_fours_ * 4);
    std::vector<Int8Query> rough(n_queries);
    for (std::size_t q = 0; q < n_queries; ++q) {
        const float* query = queries + q * n_dims_;
        float low = query[0], high = query[0];
        for (std::size_t d = 1; d < n_dims_; ++d) {
            low = query[d] < low ? query[d] : low;
            high = high < query[d] ? query[d] : high;
        }
        const float step = high > low && high - low < kInfinity ? (high - low) / 255 : 1;
        std::uint8_t* own = elements.data() + q * n_fours_ * 4;
        const float per_step = 1 / step;
        for (std::size_t d = 0; d < n_dims_; ++d) {
            // At most 255.5 by rounding, or more if numbers overflow; nothing for NaN.
            const float scaled = (query[d] - low) * per_step + 0.5f;
            own[d] = static_cast<std::uint8_t>(static_cast<int>(scaled < 255 ? (scaled > 0 ? scaled : 0) : 255));
        }
        rough[q] = {own, step * scale_, low};
    }
    const Int8Centres centres{elements_.data(), norms_.data(), sums_.data(), n_blocks_, n_fours_};
    kernel.centre_scores(centres, rough.data(), n_queries, scores);
}

float Cells::score(const NeighborKernel& kernel, const float* query, std::size_t cell) const {
    return ordered(biases_[cell] - kernel.dot(query, centre(cell), n_dims_));
}

void Cells::choose(const NeighborKernel& kernel, const float* rough_scores, std::size_t count,
                   std::vector<std::uint32_t>& room, std::vector<VisitedCell>& chosen) const {
    room.resize(n_cells_ + 16);
    std::size_t n_found = n_cells_;
    if (count < n_cells_) {
        // Somewhat more than asked for is as good as the exact number, which takes longer to find.
        const float high = kernel.bound_of_scores(rough_scores, n_blocks_, count);
        n_found = kernel.at_most(rough_scores, n_cells_, high, room.data());
    } else {
        for (std::size_t c = 0; c < n_cells_; ++c) room[c] = static_cast<std::uint32_t>(c);
    }
    // NaN, where numbers overflow, is at most nothing.
    if (n_found < std::min(count, n_cells_)) {
        for (std::size_t c = 0; c < n_cells_; ++c) room[c] = static_cast<std::uint32_t>(c);
        n_found = n_cells_;
    }
    sort_into(rough_scores, room.data(), n_found, chosen);
}

// Append cells, the best first. Scores are put into bins of equal width: in a bin, cells come in the order of their
// numbers, which takes a fraction of the time of sorting and changes only which of two nearly equal cells is first.
void Cells::sort_into(const float* rough_scores, const std::uint32_t* cells, std::size_t n_cells,
                      std::vector<VisitedCell>& chosen) const {
    constexpr std::size_t kBins = 256;
    float low = kInfinity, high = -kInfinity;
    for (std::size_t i = 0; i < n_cells; ++i) {
        const float score = ordered(rough_scores[cells[i]]);
        low = std::min(low, score);
        if (score < kInfinity) high = std::max(high, score);
    }
    const float per_step = high > low && high - low < kInfinity ? static_cast<float>(kBins - 1) / (high - low) : 0.0f;
    const auto bin_of = [&](float score) {
        const float bin = (score - low) * per_step;
        return bin < static_cast<float>(kBins - 1) ? static_cast<std::size_t>(bin > 0 ? bin : 0) : kBins - 1;
    };
    std::size_t starts[kBins + 1] = {};
    for (std::size_t i = 0; i < n_cells; ++i) ++starts[bin_of(ordered(rough_scores[cells[i]])) + 1];
    for (std::size_t bin = 0; bin < kBins; ++bin) starts[bin + 1] += starts[bin];
    const std::size_t begin = chosen.size();
    chosen.resize(begin + n_cells);
    for (std::size_t i = 0; i < n_cells; ++i) {
        const float score = ordered(rough_scores[cells[i]]);
        chosen[begin + starts[bin_of(score)]++] = {static_cast<std::int32_t>(cells[i]), score};
    }
}

}  // namespace hamtarget
