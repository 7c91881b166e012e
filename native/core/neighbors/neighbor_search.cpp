#include "neighbor_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "../errors.hpp"
#include "../../kernels/inline.hpp"
#include "in_threads.hpp"
#include "reservoir.hpp"

namespace hamtarget {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
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
          padded_(shape_.sketcher.padded_dims()) {
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
        const std::size_t n_dims = shape_.n_dims(), count = last - first;
        rotated_.resize(count * n_dims);
        core_.rotate(request_.queries + first * n_dims, count, rotated_.data());
        if (queries_.size() < count) queries_.resize(count);
        early_.clear();
        late_.clear();
        for (std::size_t q = 0; q < count; ++q) prepare(q, first, count);
        // A query's first cells bring the bound down, so that few rows of the others are kept.
        read_cells(early_, count);
        read_cells(late_, count);
        for (std::size_t q = 0; q < count; ++q) queries_[q].reservoir.shrink(kernel_);
        for (std::size_t q = 0; q < count; ++q) {
            if (q + 1 < count) fetch_vectors(queries_[q + 1].reservoir);
            const std::size_t at = first + q;
            result.costs[2 * at] = static_cast<std::int64_t>(queries_[q].n_read);
            result.costs[2 * at + 1] = static_cast<std::int64_t>(queries_[q].reservoir.size());
            rank(queries_[q].reservoir, request_.queries + at * n_dims, result.ids.data() + at * request_.k,
                 result.distances.data() + at * request_.k);
        }
        work_.settle();
    }

    // Queries that are searched at a time: as many as find room in the cache, or in memory.
    static std::size_t chunk(const NeighborRequest& request) {
        constexpr std::size_t kMostQueries = 1024, kMostRows = 4 << 20;
        return std::clamp<std::size_t>(kMostRows / std::max<std::size_t>(request.comparisons, 1), 1, kMostQueries);
    }

  private:
    // Queries whose rough scores of all cells are in the cache at the same time.
    static constexpr std::size_t kScoredQueries = 24;
    // With fewer queries, cells are read in the order of the queries.
    static constexpr std::size_t kFewQueries = 16;

    struct Query {
        std::vector<QueryTables> tables;  // by part
        Reservoir reservoir;
        float scale = 1, best_score = 0;
        std::size_t n_read = 0;
    };

    // A cell that one of the queries reads, or the first rows of it.
    struct Visit {
        std::uint32_t query;
        std::int32_t cell;
        float score;
        std::size_t n_rows;
    };

    std::size_t cell_rows(std::int32_t cell) const {
        std::size_t count = 0;
        for (const NeighborPart& part : parts_)
            count += part.rows->offsets[static_cast<std::size_t>(cell) + 1] -
                     part.rows->offsets[static_cast<std::size_t>(cell)];
        return count;
    }

    // Choose the cells of query q of the chunk, and make its tables.
    void prepare(std::size_t q, std::size_t first, std::size_t count) {
        if (!request_.cells && q % kScoredQueries == 0) {
            const std::size_t n_scored = std::min(kScoredQueries, count - q);
            rough_scores_.resize(n_scored * shape_.cells.n_scores());
            shape_.cells.rough_scores(kernel_, rotated_.data() + q * shape_.n_dims(), n_scored, rough_scores_.data());
        }
        choose_cells(q, first);
        work_.spend(shape_.cells.size());
        Query& query = queries_[q];
        std::copy_n(rotated_.data() + q * shape_.n_dims(), shape_.n_dims(), padded_.begin());
        query.scale = shape_.sketcher.fill(kernel_, padded_.data(), bias_steps_.data(), bias_steps_.size(), room_,
                                           query.tables);
        query.reservoir.reset(n_compared_);
        query.best_score = visited_.empty() ? 0 : visited_.front().score;
        query.n_read = 0;
        for (const VisitedCell& visited : visited_) {
            const std::size_t n_rows = std::min(cell_rows(visited.cell), request_.budget - query.n_read);
            auto& visits = query.n_read < 2 * n_compared_ ? early_ : late_;
            if (n_rows) visits.push_back({static_cast<std::uint32_t>(q), visited.cell, visited.score, n_rows});
            query.n_read += n_rows;
            if (query.n_read >= request_.budget) break;
        }
    }

    // Choose cells with as many rows as the budget allows.
    void choose_cells(std::size_t q, std::size_t first) {
        const float* query = rotated_.data() + q * shape_.n_dims();
        visited_.clear();
        if (request_.cells) {
            for (std::size_t i = 0; i < request_.n_cells; ++i) {
                const std::int32_t cell = request_.cells[(first + q) * request_.n_cells + i];
                if (cell < 0) continue;
                visited_.push_back({cell, shape_.cells.score(kernel_, query, static_cast<std::size_t>(cell))});
            }
            return;
        }
        const std::size_t n_cells = shape_.cells.size();
        const double share = static_cast<double>(std::min(request_.budget, n_rows_)) /
                             static_cast<double>(std::max<std::size_t>(n_rows_, 1));
        auto count = static_cast<std::size_t>(1.25 * share * static_cast<double>(n_cells)) + 2;
        for (;; count *= 2) {
            visited_.clear();
            shape_.cells.choose(kernel_, rough_scores_.data() + q % kScoredQueries * shape_.cells.n_scores(), count,
                                chosen_, visited_);
            std::size_t n_found = 0;
            for (const VisitedCell& visited : visited_) n_found += cell_rows(visited.cell);
            if (n_found >= std::min(request_.budget, n_rows_) || count >= n_cells) return;
        }
    }

    // Read cells for all queries of the chunk, each cell for all of its queries while it is in the cache.
    void read_cells(std::vector<Visit>& visits, std::size_t n_queries) {
        if (n_queries >= kFewQueries) {
            starts_.assign(shape_.cells.size() + 1, 0);
            for (const Visit& visit : visits) ++starts_[static_cast<std::size_t>(visit.cell) + 1];
            for (std::size_t cell = 0; cell < shape_.cells.size(); ++cell) starts_[cell + 1] += starts_[cell];
            sorted_.resize(visits.size());
            for (const Visit& visit : visits) sorted_[starts_[static_cast<std::size_t>(visit.cell)]++] = visit;
            visits.swap(sorted_);
        }
        for (std::size_t i = 0; i < visits.size(); ++i) {
            // A cell that is being read is in the cache.
            if (i + 1 < visits.size()) fetch_cell(visits[i + 1], visits[i + 1].cell != visits[i].cell);
            read_cell(visits[i], queries_[visits[i].query]);
        }
    }

    // Fetch the tables of the query that reads a cell, and the cell if it is far away.
    void fetch_cell(const Visit& visit, bool is_far) const {
        for (const QueryTables& tables : queries_[visit.query].tables)
            prefetch_bytes(tables.view().entries, tables.view().n_groups * kGroupTable);
        if (!is_far) return;
        for (const NeighborPart& part : parts_) {
            const auto cell = static_cast<std::size_t>(visit.cell);
            const std::size_t begin = part.rows->blocks[cell], end = part.rows->blocks[cell + 1];
            if (begin == end) continue;
            const std::size_t block_bytes = shape_.sketcher.layout().block_bytes();
            prefetch_bytes(part.rows->sketches.data() + begin * block_bytes, (end - begin) * block_bytes);
        }
    }

    void read_cell(const Visit& visit, Query& query) {
        const auto cell = static_cast<std::size_t>(visit.cell);
        Reservoir& reservoir = query.reservoir;
        std::size_t n_left = visit.n_rows;
        for (std::size_t p = 0; p < parts_.size() && n_left; ++p) {
            const Generation& rows = *parts_[p].rows;
            const std::size_t begin = rows.offsets[cell];
            const std::size_t count = std::min<std::size_t>(rows.offsets[cell + 1] - begin, n_left);
            n_left -= count;
            // Scores count from that of the best cell on, so that they are small.
            float bias = visit.score - query.best_score;
            if (!rows.cell_biases.empty()) bias += rows.cell_biases[cell];
            const std::int32_t offset = rounded(bias * query.scale);
            const std::size_t block_bytes = shape_.sketcher.layout().block_bytes();
            const std::uint8_t* sketches = rows.sketches.data() + rows.blocks[cell] * block_bytes;
            for (std::size_t first = 0; first < count; first += kScannedRows) {
                const std::size_t n_scanned = std::min(kScannedRows, count - first);
                work_.read_rows(n_scanned);
                const std::int64_t bound = std::int64_t{reservoir.bound()} - offset;
                if (bound < 0) continue;
                const std::size_t n_found = kernel_.scan(
                    sketches + first / kSketchBlockRows * block_bytes, n_scanned, query.tables[p].view(),
                    static_cast<std::int32_t>(std::min<std::int64_t>(bound, std::numeric_limits<std::int32_t>::max())),
                    sums_, found_);
                reservoir.expect(n_found);
                const DeletedRows& deleted = parts_[p].deleted;
                for (std::size_t i = 0; i < n_found; ++i) {
                    const std::size_t row = begin + first + found_[i];
                    if (deleted.count && deleted.has(row)) continue;
                    reservoir.push(sums_[i] + offset, static_cast<std::uint32_t>(first_places_[p] + row));
                }
                reservoir.settle(kernel_);
            }
        }
    }

    // Fetch the vectors of another query while one is ranked.
    void fetch_vectors(const Reservoir& reservoir) const {
        if (parts_.size() != 1 || reservoir.size() > kComparedRows) return;
        const std::size_t n_bytes = shape_.vector_bytes();
        for (std::size_t i = 0; i < reservoir.size(); ++i)
            prefetch_bytes(parts_[0].rows->vectors.data() + reservoir.places()[i] * n_bytes, n_bytes);
    }

    // Compare the vectors of all rows in the reservoir, and write the nearest.
    void rank(const Reservoir& reservoir, const float* query, std::int64_t* ids, float* distances) {
        const std::size_t count = reservoir.size();
        numbers_.resize(count);
        orders_.resize(count);
        std::size_t done = 0;
        places_.clear();
        // By part: the rows of a part follow each other in memory.
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Generation& rows = *parts_[p].rows;
            rows_.clear();
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t row = reservoir.places()[i] - first_places_[p];
                if (reservoir.places()[i] < first_places_[p] || row >= rows.n_rows) continue;
                rows_.push_back(static_cast<std::uint32_t>(row));
                places_.push_back({static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(row)});
            }
            const auto compare = (kernel_.*shape_.metric.sums)[static_cast<std::size_t>(shape_.row_type)];
            for (std::size_t first = 0; first < rows_.size(); first += kComparedRows) {
                const std::size_t n_rows = std::min(kComparedRows, rows_.size() - first);
                work_.spend(16 * n_rows);
                compare(query, shape_.n_dims(),
                        {rows.vectors.data(), shape_.vector_bytes(), rows.scales.data(), rows_.data() + first, n_rows},
                        numbers_.data() + done);
                done += n_rows;
            }
        }
        const float sign = shape_.metric.sign;
        for (std::size_t i = 0; i < count; ++i) {
            float& number = numbers_[i];
            number *= sign;
            if (std::isnan(number)) number = kInfinity;
            orders_[i] = in_order(number);
        }
        const std::size_t n_wanted = std::min(request_.k, count);
        nearest_.clear();
        if (n_wanted) {
            const std::int32_t bound = kernel_.bound_of_sums(orders_.data(), count, n_wanted);
            for (std::size_t i = 0; i < count; ++i)
                if (orders_[i] <= bound)
                    nearest_.push_back({numbers_[i], parts_[places_[i].part].rows->ids[places_[i].row]});
            std::sort(nearest_.begin(), nearest_.end());
        }
        for (std::size_t i = 0; i < request_.k; ++i) {
            ids[i] = i < n_wanted ? nearest_[i].id : -1;
            distances[i] = i < n_wanted ? shape_.metric.distance(nearest_[i].number) : kInfinity;
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
    std::vector<Query> queries_;
    std::vector<Visit> early_, late_;

    // Of the query at hand.
    std::vector<float> padded_;  // filled up with zeros
    std::vector<VisitedCell> visited_;
    std::vector<Near> nearest_;

    // Room.
    std::vector<float> room_, numbers_;
    std::vector<std::uint32_t> chosen_, rows_;
    std::vector<Place> places_;
    std::vector<std::int32_t> orders_;
    std::vector<std::uint32_t> starts_;
    std::vector<Visit> sorted_;
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
    const std::size_t piece = std::clamp<std::size_t>(request.n_queries / std::max<std::size_t>(n_threads, 1), 1,
                                                      NeighborSearcher::chunk(request));
    in_threads(request.n_queries, piece, n_threads, [&] {
        return [searcher = std::make_unique<NeighborSearcher>(core, *parts, request), &result](
                   std::size_t first, std::size_t last) { searcher->run(first, last, result); };
    });
    return result;
}

}  // namespace hamtarget
