#include "neighbor_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "../errors.hpp"
#include "in_threads.hpp"
#include "reservoir.hpp"

namespace hamtarget {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Queries whose cells are chosen at a time.
constexpr std::size_t kChunk = 64;
// Rows that are read between two looks at the bound.
constexpr std::size_t kScannedRows = 256;
// Rows that are compared between two looks at the clock.
constexpr std::size_t kComparedRows = 1024;

// Numbers of table entries that any sum stays far below.
constexpr float kMostOffset = 1 << 29;

std::int32_t rounded(float number) {
    if (!(number < kMostOffset)) return static_cast<std::int32_t>(kMostOffset);
    return number > -kMostOffset ? static_cast<std::int32_t>(std::lrint(number))
                                 : -static_cast<std::int32_t>(kMostOffset);
}

// An integer with the order of finite floats.
std::int32_t in_order(float number) {
    const auto bits = std::bit_cast<std::int32_t>(number);
    return bits >= 0 ? bits : std::numeric_limits<std::int32_t>::min() - bits;
}

// Searches for some of the queries of a request. Each thread has its own.
class NeighborSearcher {
  public:
    NeighborSearcher(const NeighborCore& core, const NeighborParts& parts, const NeighborRequest& request)
        : core_(core),
          shape_(core.shape()),
          kernel_(core.kernel()),
          parts_(parts),
          request_(request),
          work_(request.limits),
          query_(shape_.sketcher.padded_dims()) {
        std::size_t n_rows = 0, n_live = 0;
        for (const NeighborPart& part : parts) {
            first_places_.push_back(n_rows);
            bias_steps_.push_back(part.rows->bias_step);
            n_rows += part.rows->n_rows;
            n_live += part.n_live();
        }
        if (n_rows > std::numeric_limits<std::uint32_t>::max()) throw InputError("the index has more than 2^32 rows");
        n_rows_ = n_rows;
        n_compared_ = std::max(request.comparisons, request.comparisons ? request.k : 0);
        n_compared_ = std::min(n_compared_, n_live);
    }

    void run(std::size_t first, std::size_t last, Neighbors& result) {
        const std::size_t n_dims = shape_.n_dims();
        rotated_.resize((last - first) * n_dims);
        core_.rotate(request_.queries + first * n_dims, last - first, rotated_.data());
        if (!request_.cells) {
            rough_scores_.resize((last - first) * shape_.cells.n_scores());
            shape_.cells.rough_scores(kernel_, rotated_.data(), last - first, rough_scores_.data());
        }
        for (std::size_t q = first; q < last; ++q) search_one(q, q - first, result);
        work_.settle();
    }

  private:
    std::size_t cell_rows(std::int32_t cell) const {
        std::size_t count = 0;
        for (const NeighborPart& part : parts_)
            count += part.rows->offsets[static_cast<std::size_t>(cell) + 1] -
                     part.rows->offsets[static_cast<std::size_t>(cell)];
        return count;
    }

    // `at` is the place of the query in the chunk.
    void search_one(std::size_t q, std::size_t at, Neighbors& result) {
        const float* rotated = rotated_.data() + at * shape_.n_dims();
        std::copy_n(rotated, shape_.n_dims(), query_.begin());
        choose_cells(q, at);
        work_.spend(shape_.cells.size());
        scale_ = shape_.sketcher.fill(kernel_, query_.data(), bias_steps_.data(), bias_steps_.size(), room_, tables_);
        reservoir_.reset(n_compared_);
        std::size_t n_read = 0;
        for (const VisitedCell& visited : visited_) {
            if (n_read >= request_.budget) break;
            n_read += scan_cell(visited, request_.budget - n_read);
        }
        reservoir_.shrink(kernel_);
        result.costs[2 * q] = static_cast<std::int64_t>(n_read);
        result.costs[2 * q + 1] = static_cast<std::int64_t>(reservoir_.size());
        rank(request_.queries + q * shape_.n_dims(), result.ids.data() + q * request_.k,
             result.distances.data() + q * request_.k);
    }

    // Choose cells with as many rows as the budget allows.
    void choose_cells(std::size_t q, std::size_t at) {
        const float* query = rotated_.data() + at * shape_.n_dims();
        visited_.clear();
        if (request_.cells) {
            for (std::size_t i = 0; i < request_.n_cells; ++i) {
                const std::int32_t cell = request_.cells[q * request_.n_cells + i];
                if (cell >= 0) visited_.push_back({cell, shape_.cells.score(query, static_cast<std::size_t>(cell))});
            }
            return;
        }
        const std::size_t n_cells = shape_.cells.size();
        const double share = static_cast<double>(std::min(request_.budget, n_rows_)) /
                             static_cast<double>(std::max<std::size_t>(n_rows_, 1));
        auto count = static_cast<std::size_t>(1.25 * share * static_cast<double>(n_cells)) + 2;
        for (;; count *= 2) {
            visited_.clear();
            shape_.cells.choose(kernel_, query, rough_scores_.data() + at * shape_.cells.n_scores(), count, chosen_,
                                visited_);
            std::size_t n_found = 0;
            for (const VisitedCell& visited : visited_) n_found += cell_rows(visited.cell);
            if (n_found >= std::min(request_.budget, n_rows_) || count >= n_cells) return;
        }
    }

    // Read at most `most` rows of a cell; return how many there were.
    std::size_t scan_cell(const VisitedCell& visited, std::size_t most) {
        const auto cell = static_cast<std::size_t>(visited.cell);
        std::size_t n_read = 0;
        for (std::size_t p = 0; p < parts_.size() && n_read < most; ++p) {
            const Generation& rows = *parts_[p].rows;
            const std::size_t begin = rows.offsets[cell];
            const std::size_t count = std::min<std::size_t>(rows.offsets[cell + 1] - begin, most - n_read);
            n_read += count;
            // Scores count from that of the best cell on, so that they are small.
            float bias = visited.score - visited_.front().score;
            if (!rows.cell_biases.empty()) bias += rows.cell_biases[cell];
            const std::int32_t offset = rounded(bias * scale_);
            const std::size_t block_bytes = shape_.sketcher.layout().block_bytes();
            const std::uint8_t* sketches = rows.sketches.data() + rows.blocks[cell] * block_bytes;
            for (std::size_t first = 0; first < count; first += kScannedRows) {
                const std::size_t n_scanned = std::min(kScannedRows, count - first);
                work_.read_rows(n_scanned);
                const std::int64_t bound = std::int64_t{reservoir_.bound()} - offset;
                if (bound < 0) continue;
                const std::size_t n_found = kernel_.scan(
                    sketches + first / kSketchBlockRows * block_bytes, n_scanned, tables_[p].view(),
                    static_cast<std::int32_t>(std::min<std::int64_t>(bound, std::numeric_limits<std::int32_t>::max())),
                    sums_, found_);
                reservoir_.expect(n_found);
                const DeletedRows& deleted = parts_[p].deleted;
                for (std::size_t i = 0; i < n_found; ++i) {
                    const std::size_t row = begin + first + found_[i];
                    if (deleted.count && deleted.has(row)) continue;
                    reservoir_.push(sums_[i] + offset, static_cast<std::uint32_t>(first_places_[p] + row));
                }
                reservoir_.settle(kernel_);
            }
        }
        return n_read;
    }

    // Compare the vectors of all rows in the reservoir, and write the nearest.
    void rank(const float* query, std::int64_t* ids, float* distances) {
        const std::size_t count = reservoir_.size();
        numbers_.resize(count);
        orders_.resize(count);
        std::size_t done = 0;
        places_.clear();
        // By part: the rows of a part follow each other in memory.
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Generation& rows = *parts_[p].rows;
            rows_.clear();
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t row = reservoir_.places()[i] - first_places_[p];
                if (reservoir_.places()[i] < first_places_[p] || row >= rows.n_rows) continue;
                rows_.push_back(static_cast<std::uint32_t>(row));
                places_.push_back({static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(row)});
            }
            const bool is_euclidean = shape_.metric == NeighborMetric::kEuclidean;
            const auto type = static_cast<std::size_t>(shape_.row_type);
            const auto compare = is_euclidean ? kernel_.squares[type] : kernel_.products[type];
            for (std::size_t first = 0; first < rows_.size(); first += kComparedRows) {
                const std::size_t n_rows = std::min(kComparedRows, rows_.size() - first);
                work_.spend(16 * n_rows);
                compare(query, shape_.n_dims(),
                        {rows.vectors.data(), shape_.vector_bytes(), rows.scales.data(), rows_.data() + first, n_rows},
                        numbers_.data() + done);
                done += n_rows;
            }
        }
        for (std::size_t i = 0; i < count; ++i) {
            float& number = numbers_[i];
            if (shape_.metric == NeighborMetric::kDot) number = -number;
            if (std::isnan(number)) number = kInfinity;
            orders_[i] = in_order(number);
        }
        const std::size_t n_wanted = std::min(request_.k, count);
        nearest_.clear();
        if (n_wanted) {
            const std::int32_t bound = bound_of_smallest(kernel_, orders_.data(), count, n_wanted);
            for (std::size_t i = 0; i < count; ++i)
                if (orders_[i] <= bound)
                    nearest_.push_back({numbers_[i], parts_[places_[i].part].rows->ids[places_[i].row]});
            std::sort(nearest_.begin(), nearest_.end());
        }
        for (std::size_t i = 0; i < request_.k; ++i) {
            ids[i] = i < n_wanted ? nearest_[i].id : -1;
            if (i >= n_wanted)
                distances[i] = kInfinity;
            else
                distances[i] = shape_.metric == NeighborMetric::kDot ? nearest_[i].number : std::sqrt(nearest_[i].number);
        }
    }

    struct Place {
        std::uint32_t part, row;
    };
    struct Near {
        float number;
        std::int64_t id;
        bool operator<(const Near& other) const {
            return number != other.number ? number < other.number : id < other.id;
        }
    };

    const NeighborCore& core_;
    const NeighborShape& shape_;
    const NeighborKernel& kernel_;
    const NeighborParts& parts_;
    const NeighborRequest& request_;
    Work work_;
    std::size_t n_rows_ = 0, n_compared_ = 0;
    std::vector<std::size_t> first_places_;  // by part
    std::vector<float> bias_steps_;          // by part

    // Of a chunk of queries.
    std::vector<float> rotated_, rough_scores_;

    // Of the query at hand.
    std::vector<float> query_;  // filled up with zeros
    std::vector<VisitedCell> visited_;
    float scale_ = 1;
    std::vector<QueryTables> tables_;  // by part
    Reservoir reservoir_;
    std::vector<Near> nearest_;

    // Room.
    std::vector<float> room_, numbers_;
    std::vector<std::uint32_t> chosen_, rows_;
    std::vector<Place> places_;
    std::vector<std::int32_t> orders_;
    std::int32_t sums_[kScannedRows + kSketchBlockRows];
    std::uint32_t found_[kScannedRows + kSketchBlockRows];
};

}  // namespace

Neighbors search(const NeighborCore& core, const NeighborRequest& request, std::size_t n_threads) {
    if (request.k < 1) throw InputError("k is 0; expected at least 1");
    const std::size_t n_cells = core.shape().cells.size();
    if (request.cells)
        for (std::size_t i = 0; i < request.n_queries * request.n_cells; ++i)
            if (request.cells[i] >= static_cast<std::int64_t>(n_cells))
                throw InputError("cell " + std::to_string(request.cells[i]) + " does not exist; expected cells below " +
                                 std::to_string(n_cells));
    const std::shared_ptr<const NeighborParts> parts = core.parts();
    if (request.limits) request.limits->check();
    Neighbors result;
    result.ids.resize(request.n_queries * request.k);
    result.distances.resize(request.n_queries * request.k);
    result.costs.resize(request.n_queries * 2);
    const std::size_t piece = std::clamp<std::size_t>(request.n_queries / std::max<std::size_t>(n_threads, 1), 1, kChunk);
    in_threads(request.n_queries, piece, n_threads, [&] {
        return [searcher = std::make_unique<NeighborSearcher>(core, *parts, request), &result](
                   std::size_t first, std::size_t last) { searcher->run(first, last, result); };
    });
    return result;
}

}  // namespace hamtarget
