// From rows that were found to the results of queries: deleted rows, filters, limits, order, re-ranking.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../hits.hpp"
#include "../manifest.hpp"
#include "../multi_index.hpp"
#include "request.hpp"
#include "rerank.hpp"
#include "result_writer.hpp"
#include "row_lists.hpp"

namespace hamtarget {

// Collects the hits of a chunk of queries at a time. `q` counts the queries of the chunk.
//
// For each chunk: start(); then for each query found(q).reset() and any number of emit() and keep_lists(), or nothing
// at all; then finish() or write_lists() for each query, in turn. Each of these two writes the whole result of a query.
class Collector {
  public:
    Collector(const MultiIndex& index, const Manifest& manifest, const Request& request, Work& work)
        : kernel_(index.kernel()),
          manifest_(manifest),
          request_(request),
          work_(work),
          order_(manifest),
          reranker_(manifest, request, index.embedding(), work) {}

    // Begin a chunk: forget the queries of the one before.
    void start(std::size_t first_query, std::size_t n_queries) {
        first_query_ = first_query;
        if (found_.size() < n_queries) found_.resize(n_queries);
        cost_.assign(n_queries, {});
    }

    FirstHits& found(std::size_t q) { return found_[q]; }
    Cost& cost(std::size_t q) { return cost_[q]; }

    // Tell whether no row of the part is deleted or filtered out.
    bool takes_all(const Part& part) const {
        return !part.deleted && !request_.filter;
    }

    // Add a row, unless it is deleted or filtered out.
    void emit(std::size_t p, RowNumber row, Distance distance, std::size_t q) {
        const Part& part = manifest_.parts[p];
        if (!allows(part, row)) return;
        found_[q].offer(hit_of(distance, p, row), order_, work_);
    }

    // Add the rows of a code.
    void emit_code(std::size_t p, RowNumber code, Distance distance, std::size_t q) {
        manifest_.parts[p].segment->each_row(code, [&](RowNumber row) { emit(p, row, distance, q); });
    }

    // Add what is in the lists to the other hits of the query.
    void keep_lists(RowLists& lists, std::size_t p, std::size_t q) {
        const std::size_t before = n_found(q);
        for (std::size_t distance = 0; distance < lists.n_lists(); ++distance)
            for (const RowNumber row : lists.rows(distance)) emit(p, row, static_cast<Distance>(distance), q);
        count_from(before, q);
    }

    // Return how many hits a query has so far. (With a limit, some of them will be dropped.)
    std::size_t n_found(std::size_t q) { return found_[q].all().size(); }

    // Count the hits that came after the first `before`. With a limit they are counted at the end, when it is known
    // which of them are kept.
    void count_from(std::size_t before, std::size_t q) {
        if (request_.limit == kNoLimit) work_.find_hits(n_found(q) - before);
    }

    // Write the hits of a query, in order, as its result.
    void finish(std::size_t q, Hits& hits) {
        const std::span<const Hit> sorted = found_[q].sorted(sorter_, order_, work_);
        if (request_.limit != kNoLimit) work_.find_hits(sorted.size());
        if (request_.rerank) {
            cost_[q].comparisons = static_cast<std::int64_t>(sorted.size());
            reranker_.append(first_query_ + q, sorted, hits);
        } else {
            write(sorted, hits.ids.extend(sorted.size()), hits.distances.extend(sorted.size()));
        }
        hits.end_query(cost_[q]);
    }

    // Give the memory of a finished query, which is in the cache, to the next one.
    void pass_on(std::size_t q) {
        if (q + 1 < cost_.size()) std::swap(found_[q], found_[q + 1]);
    }

    // Write what is in the lists as the result of the query. They are of the only part.
    void write_lists(RowLists& lists, std::size_t q, Hits& hits) {
        const Part& part = manifest_.parts[0];
        const bool takes_all = this->takes_all(part);
        std::size_t most = 0;
        for (std::size_t distance = 0; distance < lists.n_lists(); ++distance) most += lists.size(distance);
        ResultWriter writer(kernel_, part.segment->ids, hits, most);
        std::size_t left = request_.limit;
        for (std::size_t distance = 0; distance < lists.n_lists() && left > 0; ++distance) {
            std::span<RowNumber> rows = lists.sorted(distance, kernel_);
            if (!takes_all) {
                const auto refused = [&](RowNumber row) { return !allows(part, row); };
                rows = {rows.begin(), std::remove_if(rows.begin(), rows.end(), refused)};
            }
            rows = rows.first(std::min(rows.size(), left));
            left -= rows.size();
            writer.write(rows, static_cast<Distance>(distance));
        }
        work_.find_hits(writer.finish());
        hits.end_query(cost_[q]);
    }

  private:
    bool allows(const Part& part, RowNumber row) const {
        return !part.is_deleted(row) && (!request_.filter || request_.filter->allows(part.segment->ids[row]));
    }

    void write(std::span<const Hit> hits, Id* ids, Distance* distances) const {
        const bool is_consecutive = manifest_.parts.size() == 1 && manifest_.parts[0].segment->ids.is_consecutive();
        work_.in_blocks(hits.size(), [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) distances[i] = distance_of(hits[i]);
            if (is_consecutive) {
                const Id base = manifest_.parts[0].segment->ids.base();
                for (std::size_t i = first; i < last; ++i) ids[i] = base + static_cast<Id>(raw(row_of(hits[i])));
            } else {
                for (std::size_t i = first; i < last; ++i) ids[i] = order_.id(hits[i]);
            }
        });
    }

    const CodeKernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    Work& work_;
    const HitOrder order_;
    Reranker reranker_;
    std::size_t first_query_ = 0;
    std::vector<FirstHits> found_;
    std::vector<Cost> cost_;
    HitSorter sorter_;
};

}  // namespace hamtarget
