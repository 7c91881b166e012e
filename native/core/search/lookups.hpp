// The query's own bucket of each table, fetched from memory before it is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../kernels/tables.hpp"

namespace hamtarget {

HAMTARGET_INLINE void prefetch_bucket(const Table& table, Span span, std::size_t n_bytes) {
    if (span.start == span.stop) return;
    prefetch_bytes(table.codes + span.start * n_bytes, span.size() * n_bytes);
    prefetch_bytes(table.rows + span.start, span.size() * sizeof *table.rows);
}

// While a bucket is read, the same bucket of a later query is being fetched, and, for an even later query, the offsets
// that say where its bucket is. A CPU ignores requests to fetch while too many are under way, so it gets a few at a
// time.
class Lookups {
  public:
    // Look up buckets of these tables, which live as long as this does.
    explicit Lookups(std::vector<const Table*> tables)
        : tables_(std::move(tables)),
          ahead_(tables_.empty() ? 0 : std::clamp<std::size_t>(kAhead / tables_.size(), 1, kAhead)) {}

    // Begin with these queries, each of which reads one bucket of each table.
    void start(Codes queries) {
        queries_ = queries;
        lookups_.resize(queries_.n_rows * tables_.size());
        for (std::size_t q = 0; q < std::min(2 * ahead_, queries_.n_rows); ++q)
            for (std::size_t i = 0; i < tables_.size(); ++i) look_up(q, i);
        for (std::size_t q = 0; q < std::min(ahead_, queries_.n_rows); ++q)
            for (std::size_t i = 0; i < tables_.size(); ++i) fetch(q, i);
    }

    // Fetch what later queries read. Call this before bucket i of query q is read, for each query in turn.
    HAMTARGET_INLINE void fetch_later(std::size_t q, std::size_t i) {
        if (q + 2 * ahead_ < queries_.n_rows) look_up(q + 2 * ahead_, i);
        if (q + ahead_ < queries_.n_rows) fetch(q + ahead_, i);
    }

    // Return the buckets of query q, one for each table. fetch_later must have been called for all queries before it.
    const Lookup* of(std::size_t q) const { return lookups_.data() + q * tables_.size(); }

  private:
    // Buckets that are being fetched at a time.
    static constexpr std::size_t kAhead = 8;

    HAMTARGET_INLINE void look_up(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * tables_.size() + i];
        lookup.number = tables_[i]->key.bucket_of(queries_.row(q));
        __builtin_prefetch(tables_[i]->offsets + raw(lookup.number));
    }

    HAMTARGET_INLINE void fetch(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * tables_.size() + i];
        lookup.span = tables_[i]->bucket(lookup.number);
        prefetch_bucket(*tables_[i], lookup.span, queries_.n_bytes);
    }

    std::vector<const Table*> tables_;
    std::size_t ahead_;  // queries
    Codes queries_{};
    std::vector<Lookup> lookups_;
};

}  // namespace hamtarget
