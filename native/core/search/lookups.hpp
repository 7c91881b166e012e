// The query's own bucket of each table, fetched from memory before it is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../kernels/tables.hpp"

namespace hamtarget {

// LaterBuckets says what is fetched, and when.
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

    // Return what is to be fetched while query q reads its buckets from lookup `first` on, for each query in turn.
    HAMTARGET_INLINE LaterBuckets later(std::size_t q, std::size_t first) {
        const std::size_t next = q + ahead_, last = q + 2 * ahead_;
        const auto from = [&](std::size_t later) { return lookups_.data() + later * tables_.size() + first; };
        LaterBuckets later{};
        if (last < queries_.n_rows) later.query = queries_.row(last), later.looked_up = from(last);
        if (next < queries_.n_rows) later.fetched = from(next);
        return later;
    }

    // Fetch what later queries read. Call this before bucket i of query q is read, where no kernel does it.
    HAMTARGET_INLINE void fetch_later(std::size_t q, std::size_t i) {
        later(q, i).fetch(*tables_[i], 0, queries_.n_bytes);
    }

    // Return the buckets of query q, one for each table. All queries before it have fetched what comes later.
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
