// Searches of an index that grows: one large part, and a few small ones that came after it.
//
// A search of one part is faster than one of several, and most queries find nothing in the small parts, which filters
// tell. So the large part is searched alone; queries that may have hits in the others are searched for there, and what
// is found is inserted. This is done for a chunk of queries at a time, while their hits are in the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "../hits.hpp"
#include "../limits.hpp"
#include "../manifest.hpp"
#include "../multi_index.hpp"
#include "request.hpp"
#include "search_plan.hpp"
#include "searcher.hpp"

namespace hamtarget {

// Searches some parts of a manifest for queries that are copied to it.
class PartsSearcher {
  public:
    // `limits` take the place of those of the request.
    PartsSearcher(const MultiIndex& index, std::span<const Part> parts, const Request& request, Limits* limits)
        : manifest_{.parts = {parts.begin(), parts.end()}, .young = nullptr},
          request_(of_parts(request, limits)),
          plan_(index.layout(), manifest_, request_),
          searcher_(index, manifest_, request_, plan_) {}

    PartsSearcher(const PartsSearcher&) = delete;
    PartsSearcher& operator=(const PartsSearcher&) = delete;

    // Append the hits of these queries.
    void run(Codes queries, Hits& hits) {
        request_.queries = queries;
        searcher_.run(0, queries.n_rows, hits);
    }

  private:
    static Request of_parts(Request request, Limits* limits) {
        request.limits = limits;
        return request;
    }

    const Manifest manifest_;
    Request request_;
    const SearchPlan plan_;
    Searcher searcher_;
};

// Searches the small parts that one filter tells about.
class YoungSearcher {
  public:
    // A filter that is null, or does not serve the radius, refuses no query.
    YoungSearcher(const MultiIndex& index, std::span<const Part> parts, const YoungFilter* filter, const Request& request,
                  Limits* limits)
        : index_(index),
          parts_(parts),
          filter_(filter && filter->serves(request.radius) ? filter : nullptr),
          request_(request),
          limits_(limits) {}

    // Insert what is found for these queries into their hits, which are the last ones of `hits`.
    void run(Codes queries, Hits& hits) {
        select(queries);
        if (selected_.empty()) return;
        const std::size_t n_bytes = queries.n_bytes;
        codes_.resize(selected_.size() * n_bytes);
        for (std::size_t i = 0; i < selected_.size(); ++i)
            std::memcpy(codes_.data() + i * n_bytes, queries.row(selected_[i]), n_bytes);
        if (searchers_.empty()) open();
        const Codes some{codes_.data(), selected_.size(), n_bytes};
        const std::size_t first = hits.n_queries() - queries.n_rows;
        for (std::uint32_t& query : selected_) query += static_cast<std::uint32_t>(first);
        for (const auto& searcher : searchers_) {
            found_.clear();
            searcher->run(some, found_);
            hits.insert(found_, selected_);
        }
    }

  private:
    // Searching parts one after another is faster than all at once, if they are few.
    static constexpr std::size_t kFew = 4;

    void select(Codes queries) {
        if (filter_) return filter_->select(queries, selected_);
        selected_.resize(queries.n_rows);
        std::iota(selected_.begin(), selected_.end(), 0u);
    }

    // Make the searchers, which a search of few queries often does not need.
    void open() {
        const std::size_t step = parts_.size() > kFew ? parts_.size() : 1;
        for (std::size_t p = 0; p < parts_.size(); p += step)
            searchers_.push_back(std::make_unique<PartsSearcher>(index_, parts_.subspan(p, step), request_, limits_));
    }

    const MultiIndex& index_;
    const std::span<const Part> parts_;
    const YoungFilter* const filter_;
    const Request& request_;
    Limits* const limits_;
    std::vector<std::unique_ptr<PartsSearcher>> searchers_;
    // Of the queries at hand: those that may have hits, their codes, and what was found.
    std::vector<std::uint32_t> selected_;
    std::vector<std::uint8_t> codes_;
    Hits found_;
};

// Searches for some of the queries of a request. Each thread has its own.
class SplitSearcher {
  public:
    // Tell whether this suits a manifest and a request, which is not probed. With a limit, what is found in one part
    // spares work in the next: then it pays only if few queries are searched for twice.
    static bool suits(const Manifest& manifest, const Request& request) {
        return manifest.parts.size() > 1 && !manifest.parts[0].segment->tables.empty() &&
               manifest.parts[0].n_rows > manifest.n_rows() / 2 && !request.rerank &&
               (request.limit == kNoLimit || has_filters(manifest, request.radius));
    }

    SplitSearcher(const MultiIndex& index, const Manifest& manifest, const Request& request)
        : request_(request),
          uncounted_(request.limits),
          large_(index, std::span(manifest.parts).first(1), request, request.limits) {
        const auto young = std::span(manifest.parts).subspan(1);
        const std::size_t n_deltas = young.back().delta ? 1 : 0;
        // With a limit on hits a query, some of them will be dropped; those that are kept count.
        Limits* const limits = request.limits && request.limit != kNoLimit ? &uncounted_ : request.limits;
        if (young.size() > n_deltas)
            young_.emplace_back(index, young.first(young.size() - n_deltas), manifest.young.get(), request, limits);
        // A delta is scanned, so that it has a filter of its own.
        if (n_deltas) young_.emplace_back(index, young.last(1), young.back().delta->filter.get(), request, limits);
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        for (std::size_t start = first; start < last; start += kChunk) {
            const std::size_t count = std::min(kChunk, last - start);
            search_chunk(request_.queries.slice(start, count), hits);
            if (start == first) hits.expect(last - start - count);
        }
    }

  private:
    // As many as a searcher has at hand at a time.
    static constexpr std::size_t kChunk = Searcher::kChunk;

    // Tell whether filters know which queries find nothing in the parts after the first.
    static bool has_filters(const Manifest& manifest, std::size_t radius) {
        const Part& last = manifest.parts.back();
        const auto serves = [&](const auto& filter) { return filter && filter->serves(radius); };
        const bool has_others = manifest.parts.size() > (last.delta ? 2 : 1);
        return (!last.delta || serves(last.delta->filter)) && (!has_others || serves(manifest.young));
    }

    void search_chunk(Codes queries, Hits& hits) {
        const std::size_t first_query = hits.n_queries();
        large_.run(queries, hits);
        const std::size_t n_large = hits.ids.size();
        for (YoungSearcher& young : young_) young.run(queries, hits);
        if (request_.limit == kNoLimit) return;
        hits.keep_first(request_.limit, first_query);
        if (request_.limits) request_.limits->take(0, hits.ids.size() - n_large);
    }

    const Request& request_;
    Limits uncounted_;
    PartsSearcher large_;
    std::vector<YoungSearcher> young_;
};

}  // namespace hamtarget
