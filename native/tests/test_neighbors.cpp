// Every kernel that this CPU can run reads cells as a plain loop does; an index lives through changes of its rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../core/errors.hpp"
#include "../core/neighbors/neighbor_core.hpp"
#include "../core/neighbors/neighbor_search.hpp"
#include "../core/neighbors/reservoir.hpp"
#include "check.hpp"

namespace {

using namespace hamtarget;
using Random = std::mt19937_64;

float a_float(Random& random) { return std::normal_distribution<float>()(random); }

Array<const float> floats(Random& random, std::size_t count) {
    Array<float> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = a_float(random);
    return result;
}

void scanning(const NeighborKernel& kernel, Random& random, std::size_t n_parts, std::size_t n_rows, bool extreme) {
    const SketchLayout layout{n_parts, false};
    const std::size_t n_groups = layout.n_groups(), n_blocks = (n_rows + 15) / 16;
    std::vector<std::uint8_t> values(n_rows * n_parts), sketches(n_blocks * layout.block_bytes());
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t part = 0; part < n_parts; ++part) {
            const auto value = static_cast<std::uint8_t>(random() % 16);
            values[row * n_parts + part] = value;
            layout.put(sketches.data() + row / 16 * layout.block_bytes(), row % 16, part, value);
            CHECK(layout.get(sketches.data() + row / 16 * layout.block_bytes(), row % 16, part) == value);
        }
    std::vector<std::uint8_t> entries(n_groups * kGroupTable), weights(n_groups * kGroupParts, 1);
    for (std::size_t i = 0; i < n_parts * kPartEntries; ++i)
        entries[i] = static_cast<std::uint8_t>(extreme ? 255 : random() % 256);
    for (auto& weight : weights) weight = static_cast<std::uint8_t>(extreme ? kMostWeight : 1 + random() % kMostWeight);
    std::vector<std::int32_t> expected(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t part = 0; part < n_parts; ++part)
            expected[row] += weights[part] * entries[part * kPartEntries + values[row * n_parts + part]];
    std::vector<std::int32_t> bounds = {-1, 0, 1 << 30};
    if (n_rows) bounds.push_back(expected[random() % n_rows]);
    for (const std::int32_t bound : bounds) {
        std::vector<std::int32_t> sums(n_rows + kSketchBlockRows);
        std::vector<std::uint32_t> rows(n_rows + kSketchBlockRows);
        const std::size_t count = kernel.scan(sketches.data(), n_rows, {entries.data(), weights.data(), n_groups},
                                              bound, sums.data(), rows.data());
        std::size_t next = 0;
        for (std::uint32_t row = 0; row < n_rows; ++row) {
            if (expected[row] > bound) continue;
            CHECK(next < count && rows[next] == row && sums[next] == expected[row]);
            ++next;
        }
        CHECK(next == count);
    }
}

void scoring_centres(const NeighborKernel& kernel, Random& random, std::size_t n_dims, std::size_t n_cells) {
    const std::size_t n_queries = 1 + random() % 15;
    const Cells cells(floats(random, n_cells * n_dims), n_cells, n_dims, true);
    const Array<const float> queries = floats(random, n_queries * n_dims);
    std::vector<float> scores(n_queries * cells.n_scores()), plain(scores.size());
    cells.rough_scores(kernel, queries.data(), n_queries, scores.data());
    cells.rough_scores(*supported_neighbor_kernels().back(), queries.data(), n_queries, plain.data());
    for (std::size_t q = 0; q < n_queries; ++q) {
        for (std::size_t c = 0; c < cells.n_scores(); ++c) {
            const float rough = scores[q * cells.n_scores() + c], same = plain[q * cells.n_scores() + c];
            if (c >= n_cells) CHECK(std::isinf(rough));
            else CHECK(std::abs(rough - same) <= 1e-3f * (1 + std::abs(same)));
        }
        std::vector<std::uint32_t> room;
        for (const std::size_t count : {std::size_t{1}, n_cells / 3 + 1, n_cells, 2 * n_cells}) {
            std::vector<VisitedCell> chosen;
            const float* own = scores.data() + q * cells.n_scores();
            cells.choose(kernel, own, count, room, chosen);
            CHECK(chosen.size() >= std::min(count, n_cells) && chosen.size() <= n_cells);
            // Those of the smallest scores, in order but for the width of a bin.
            std::vector<float> sorted(own, own + n_cells);
            std::sort(sorted.begin(), sorted.end());
            const float width = (sorted[chosen.size() - 1] - sorted[0]) / 250 + 1e-6f;
            for (std::size_t i = 0; i < chosen.size(); ++i) {
                CHECK(chosen[i].score == own[chosen[i].cell]);
                CHECK(std::abs(chosen[i].score - sorted[i]) <= width);
            }
        }
    }
}

void ranking(const NeighborKernel& kernel, Random& random, std::size_t n_dims) {
    constexpr std::size_t kRows = 37;
    const Array<const float> query = floats(random, n_dims);
    const std::size_t widths[] = {1, 1, 2, 4};
    for (std::size_t type = 0; type < 4; ++type) {
        std::vector<std::uint8_t> bytes(kRows * n_dims * widths[type]);
        std::vector<float> elements(kRows * n_dims), scales(kRows);
        for (float& scale : scales) scale = 0.5f + static_cast<float>(random() % 100) / 100;
        for (std::size_t i = 0; i < kRows * n_dims; ++i) {
            const auto byte = static_cast<std::uint8_t>(random());
            if (type == 0) elements[i] = scales[i / n_dims] * static_cast<float>(static_cast<std::int8_t>(byte));
            if (type == 1) elements[i] = byte;
            if (type < 2) bytes[i] = byte;
            if (type == 2) {
                // 1 to 2 in float16.
                const auto half = static_cast<std::uint16_t>(0x3C00 | random() % 1024);
                std::memcpy(bytes.data() + 2 * i, &half, 2);
                elements[i] = 1 + static_cast<float>(half & 1023) / 1024;
            }
            if (type == 3) {
                elements[i] = a_float(random);
                std::memcpy(bytes.data() + 4 * i, &elements[i], 4);
            }
        }
        std::vector<std::uint32_t> rows = {5, 0, 36, 5, 7, 35, 1};
        rows.resize(random() % (rows.size() + 1));
        const RankedRows ranked{bytes.data(), n_dims * widths[type], scales.data(), rows.data(), rows.size()};
        std::vector<float> squares(rows.size()), products(rows.size());
        kernel.squares[type](query.data(), n_dims, ranked, squares.data());
        kernel.products[type](query.data(), n_dims, ranked, products.data());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            double square = 0, product = 0, size = 0;
            for (std::size_t d = 0; d < n_dims; ++d) {
                const double element = elements[rows[i] * n_dims + d], own = query[d];
                square += (own - element) * (own - element);
                product += own * element;
                size += std::abs(own * element);
            }
            CHECK(std::abs(squares[i] - square) <= 1e-4 * (1 + square));
            CHECK(std::abs(products[i] - product) <= 1e-4 * (1 + size));
        }
    }
}

void finding_nearest(const NeighborKernel& kernel, Random& random, std::size_t n_dims, std::size_t n_centres) {
    const std::size_t n_rows = 1 + random() % 40;
    const Array<const float> rows = floats(random, n_rows * n_dims), centres = floats(random, n_centres * n_dims);
    std::vector<std::int32_t> nearest(n_rows);
    std::vector<float> squares(n_rows);
    nearest_centres(kernel, rows.data(), n_rows, centres.data(), n_centres, n_dims, 2, nearest.data(), squares.data());
    for (std::size_t row = 0; row < n_rows; ++row) {
        const auto square_to = [&](std::size_t c) {
            double sum = 0;
            for (std::size_t d = 0; d < n_dims; ++d)
                sum += std::pow(static_cast<double>(rows[row * n_dims + d]) - centres[c * n_dims + d], 2);
            return sum;
        };
        CHECK(nearest[row] >= 0 && static_cast<std::size_t>(nearest[row]) < n_centres);
        const double found = square_to(static_cast<std::size_t>(nearest[row]));
        CHECK(std::abs(found - squares[row]) <= 1e-3 * (1 + found));
        for (std::size_t c = 0; c < n_centres; ++c) CHECK(found <= square_to(c) + 1e-3 * (1 + found));
    }
}

void keeping_the_smallest(const NeighborKernel& kernel, Random& random) {
    const std::size_t most = random() % 50, n_given = random() % 2000;
    const auto n_scores = static_cast<std::int32_t>(1 + random() % 300);
    std::vector<std::pair<std::int32_t, std::uint32_t>> given;
    for (std::uint32_t i = 0; i < n_given; ++i)
        given.emplace_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(n_scores)) - 100, i);
    std::shuffle(given.begin(), given.end(), random);
    Reservoir reservoir;
    reservoir.reset(most);
    for (const auto& [score, place] : given) {
        reservoir.expect(1);
        if (score <= reservoir.bound()) reservoir.push(score, place);
        reservoir.settle(kernel);
    }
    reservoir.shrink(kernel);
    std::sort(given.begin(), given.end());
    given.resize(std::min(most, n_given));
    std::vector<std::pair<std::int32_t, std::uint32_t>> kept;
    for (std::size_t i = 0; i < reservoir.size(); ++i)
        kept.emplace_back(reservoir.scores()[i], reservoir.places()[i]);
    std::sort(kept.begin(), kept.end());
    CHECK(kept == given);
}

// Random changes; a search that compares every row finds what a map has.
void living(const NeighborKernel& kernel, Random& random, const NeighborMetric& metric) {
    constexpr std::size_t kDims = 13, kPartDims = 2, kParts = 7;
    NeighborCore core(kDims, metric, RowType::kFloat32, floats(random, 5 * kDims),
                      floats(random, kParts * kPartEntries * kPartDims), kPartDims, {}, kernel);
    const bool is_dot = std::string(metric.name) == "dot";
    std::map<std::int64_t, std::vector<float>> known;
    for (int change = 0; change < 60; ++change) {
        std::vector<std::int64_t> ids;
        if (random() % 3) {
            std::vector<float> rows;
            for (std::size_t i = random() % 40; i--;) {
                const auto id = static_cast<std::int64_t>(random() % 100'000);
                if (known.count(id)) continue;
                auto& row = known[id];
                for (std::size_t d = 0; d < kDims; ++d) row.push_back(a_float(random));
                rows.insert(rows.end(), row.begin(), row.end());
                ids.push_back(id);
            }
            core.add(ids.data(), ids.size(), {.floats = rows.data()}, 1 + random() % 2);
            if (!ids.empty()) CHECK_THROWS(InputError, core.add(ids.data(), 1, {.floats = rows.data()}, 1));
        } else {
            for (const auto& [id, row] : known)
                if (random() % 4 == 0) ids.push_back(id);
            for (const std::int64_t id : ids) known.erase(id);
            CHECK(core.remove(ids.data(), ids.size()) == ids.size());
            CHECK(core.remove(ids.data(), ids.size()) == 0);
        }
        if (random() % 8 == 0) core.compact();
        if (random() % 8 == 0) core.reset(Generation(*core.compact()));
        CHECK(core.size() == known.size());
        for (const auto& [id, row] : known) {
            std::vector<float> kept(kDims);
            core.get(&id, 1, kept.data());
            CHECK(kept == row);
        }
        const std::int64_t nobody = 100'000;
        float nothing[kDims];
        CHECK_THROWS(InputError, core.get(&nobody, 1, nothing));
        const Array<const float> query = floats(random, kDims);
        std::vector<std::pair<double, std::int64_t>> expected;
        for (const auto& [id, row] : known) {
            double sum = 0;
            for (std::size_t d = 0; d < kDims; ++d)
                sum += is_dot ? -double{row[d]} * query[d] : std::pow(row[d] - query[d], 2);
            expected.emplace_back(is_dot ? sum : std::sqrt(sum), id);
        }
        std::sort(expected.begin(), expected.end());
        NeighborRequest request{.queries = query.data(), .n_queries = 1, .k = 7, .budget = 1'000'000, .comparisons = 1'000'000};
        const Neighbors found = search(core, request, 1);
        for (std::size_t i = 0; i < 7; ++i) {
            if (i >= expected.size()) CHECK(found.ids[i] == -1 && std::isinf(found.distances[i]));
            else CHECK(std::abs(found.distances[i] - expected[i].first) < 1e-4 * (1 + std::abs(expected[i].first)));
        }
        request.budget = random() % 100;
        request.comparisons = random() % 30;
        const Neighbors some = search(core, request, 1);
        std::size_t n_stored = 0;
        for (const NeighborPart& part : *core.parts()) n_stored += part.rows->n_rows;
        CHECK(some.costs[0] == static_cast<std::int64_t>(std::min(request.budget, n_stored)));
    }
}

}  // namespace

int main() {
    for (const NeighborKernel* kernel : supported_neighbor_kernels()) {
        Random random(7);
        for (std::size_t n_parts = 1; n_parts <= 50; ++n_parts)
            for (const std::size_t n_rows : {0, 1, 15, 16, 17, 63, 64, 65, 130})
                scanning(*kernel, random, n_parts, n_rows, false);
        scanning(*kernel, random, 4096, 33, true);
        for (std::size_t n = 1; n <= 70; ++n) {
            scoring_centres(*kernel, random, n, 1 + random() % 300);
            ranking(*kernel, random, n);
            finding_nearest(*kernel, random, n, 1 + random() % 100);
        }
        ranking(*kernel, random, 1000);
        for (int i = 0; i < 200; ++i) keeping_the_smallest(*kernel, random);
        for (const NeighborMetric& metric : kNeighborMetrics) living(*kernel, random, metric);
    }
    std::puts("neighbors: ok");
}
