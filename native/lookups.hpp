// The query's own bucket of each table, fetched from memory before it is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bucket.hpp"
#include "code.hpp"
#include "segment.hpp"

namespace hamtarget {

inline Span bucket(const Table& table, std::uint32_t key) { return {table.offsets[key], table.offsets[key + 1]}; }

HAMTARGET_INLINE void prefetch_bucket(const Table& table, Span span, std::size_t n_bytes) {
    if (span.start == span.stop) return;
    prefetch_bytes(table.codes.data() + span.start * n_bytes, span.size() * n_bytes);
    prefetch_bytes(table.rows.data() + span.start, span.size() * sizeof table.rows[0]);
}

// While a bucket is read, the same bucket of a later query is being fetched, and the place of an even later one's in
// the directory. A CPU drops what it is asked to fetch while too much is under way: so it is asked a little at a time.
class Lookups {
  public:
    // Begins with these queries, each of which reads one bucket of each table.
    void start(const std::vector<const Table*>& tables, Codes queries) {
        tables_ = tables;
        queries_ = queries;
        ahead_ = tables_.empty() ? 0 : std::clamp<std::size_t>(kAhead / tables_.size(), 1, kAhead);
        lookups_.resize(queries_.n_rows * tables_.size());
        for (std::size_t q = 0; q < std::min(2 * ahead_, queries_.n_rows); ++q)
            for (std::size_t i = 0; i < tables_.size(); ++i) look_up(q, i);
        for (std::size_t q = 0; q < std::min(ahead_, queries_.n_rows); ++q)
            for (std::size_t i = 0; i < tables_.size(); ++i) fetch(q, i);
    }

    // To be called before bucket i of query q is read, queries in turn.
    HAMTARGET_INLINE void fetch_later(std::size_t q, std::size_t i) {
        if (q + 2 * ahead_ < queries_.n_rows) look_up(q + 2 * ahead_, i);
        if (q + ahead_ < queries_.n_rows) fetch(q + ahead_, i);
    }

    // In each table.
    const Lookup* of(std::size_t q) const { return lookups_.data() + q * tables_.size(); }

  private:
    // So many buckets are being fetched at a time.
    static constexpr std::size_t kAhead = 8;

    HAMTARGET_INLINE void look_up(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * tables_.size() + i];
        lookup.key = tables_[i]->key.of(queries_.row(q));
        __builtin_prefetch(tables_[i]->offsets.data() + lookup.key);
    }

    HAMTARGET_INLINE void fetch(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * tables_.size() + i];
        lookup.span = bucket(*tables_[i], lookup.key);
        prefetch_bucket(*tables_[i], lookup.span, queries_.n_bytes);
    }

    std::vector<const Table*> tables_;
    Codes queries_{};
    std::size_t ahead_ = 0;  // queries
    std::vector<Lookup> lookups_;
};

}  // namespace hamtarget
