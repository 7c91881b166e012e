// Searches of one manifest: the first `limit` rows within `radius`, exactly.
//
// With m tables, step t reads the buckets of table t % m whose numbers differ from the query's in exactly t / m bits.
// After steps 0 to t every row within distance t has been read (pigeonhole: a row that differs by at most t / m bits
// in none of the first t % m + 1 substrings, and by less in none of the others, is farther than t). So a search within
// a radius takes the steps 0 to radius, one for the k nearest stops at the first t within which there are k, and any
// number of tables serves any radius. A row's own first step follows from its code: it is emitted there and nowhere
// else, without a set of visited rows.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "bucket.hpp"
#include "collector.hpp"
#include "hits.hpp"
#include "kernel.hpp"
#include "lookups.hpp"
#include "manifest.hpp"
#include "multi_index.hpp"
#include "request.hpp"
#include "row_lists.hpp"

namespace hamtarget {

// Searches for some of the queries of a request. Each thread has its own.
class Searcher {
  public:
    Searcher(const MultiIndex& index, const Manifest& manifest, const Request& request, const StepCosts& costs)
        : layout_(index.layout()),
          kernel_(index.kernel()),
          manifest_(manifest),
          request_(request),
          costs_(costs),
          n_tables_(layout_.n_tables),
          collector_(index, manifest, request),
          scans_(manifest.parts.size()) {
        scans_all_ = grows() && request.limit == kNoLimit && costs.steps(0, request.radius) > costs.scan();
        lists_hits_ = !grows() && request.limit == kNoLimit && request.radius < RowLists::kMostLists;
        lists_all_ = lists_hits_ && manifest.parts.size() == 1 && !manifest.parts[0].segment->tables.empty();
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        const std::size_t begin = first;
        for (; first < last; first += n_queries_) {
            first_query_ = first;
            n_queries_ = std::min(kChunk, last - first);
            collector_.start(first, n_queries_);
            search_chunk(hits);
            if (first == begin) hits.expect(n_queries_, last - first - n_queries_);
        }
    }

  private:
    // So many queries read a block of rows while it is in the cache.
    static constexpr std::size_t kChunk = 256;
    static constexpr std::size_t kKeys = 32;

    struct Scan {
        std::uint32_t query;
        std::uint32_t step;  // rows of earlier steps have been emitted
    };

    const std::uint8_t* query(std::size_t q) const { return request_.queries.row(first_query_ + q); }

    // Whether bits have to be flipped.
    bool grows() const { return n_tables_ && request_.radius >= n_tables_; }

    void search_chunk(Hits& hits) {
        for (auto& scans : scans_) scans.clear();
        scanning_.assign(n_queries_, 0);
        tabled_.clear();
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            if (manifest_.parts[p].segment->tables.empty() || scans_all_)
                for (std::uint32_t q = 0; q < n_queries_; ++q) scans_[p].push_back({q, 0});
            else
                tabled_.push_back(p);
        }
        const std::size_t finished = first_steps(hits);
        if (grows() && !scans_all_)
            for (std::size_t q = 0; q < n_queries_; ++q) later_steps(q);
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) scan(p);
        for (std::size_t q = finished; q < n_queries_; ++q) collector_.finish(q, hits);
    }

    // Steps that flip no bit, for all queries: one bucket of each table.
    // Returns how many queries, from the first on, are finished.
    std::size_t first_steps(Hits& hits) {
        n_steps_ = std::min<std::size_t>(request_.radius + 1u, n_tables_);
        std::vector<const Table*> tables;
        for (const std::size_t p : tabled_)
            for (std::size_t j = 0; j < n_steps_; ++j) tables.push_back(&manifest_.parts[p].segment->tables[j]);
        lookups_.start(tables, request_.queries.slice(first_query_, n_queries_));

        // Queries that wait for a scan, and those after them, are finished in turn when it is done.
        bool waits = grows() || tabled_.size() < manifest_.parts.size();
        std::size_t finished = 0;
        for (std::size_t q = 0; q < n_queries_; ++q) {
            bool listed = list(q);
            if (!listed || waits || request_.rerank) {
                collector_.found(q).reset(request_.radius, request_.limit);
                listed ? collector_.keep_lists(lists_, 0, q) : read(q);
                listed = false;
            }
            waits |= scanning_[q];
            if (waits) continue;
            if (listed) {
                collector_.write_lists(lists_, q, hits);
            } else {
                collector_.finish(q, hits);
                collector_.pass_on(q);
            }
            ++finished;
        }
        return finished;
    }

    // Rows in the query's own buckets of a part.
    std::size_t n_candidates(const Lookup* lookups) const {
        std::size_t sum = 0;
        for (std::size_t j = 0; j < n_steps_; ++j) sum += lookups[j].span.size();
        return sum;
    }

    static bool is_scan_cheaper(const Part& part, std::size_t n_candidates) {
        return n_candidates * kBucketRowCost > part.n_rows;
    }

    // Puts all hits of the query into the lists, or returns false where that cannot be.
    bool list(std::size_t q) {
        if (!lists_all_) return false;
        const Lookup* lookups = lookups_.of(q);
        const std::size_t rows = n_candidates(lookups);
        if (is_scan_cheaper(manifest_.parts[0], rows) || rows > RowLists::kMostRows) return false;
        const auto before = [&](std::size_t j) __attribute__((always_inline)) { lookups_.fetch_later(q, j); };
        list_part(0, q, rows, lookups, before);
        return true;
    }

    template <class Before>
    HAMTARGET_INLINE void list_part(std::size_t p, std::size_t q, std::size_t rows, const Lookup* lookups,
                                    Before before) {
        const Segment& segment = *manifest_.parts[p].segment;
        collector_.cost(q).buckets += static_cast<std::int64_t>(n_steps_);
        collector_.cost(q).candidates += static_cast<std::int64_t>(rows);
        const auto tables = std::span(segment.tables).first(n_steps_);
        lists_.reset(request_.radius, rows, n_steps_);
        read_buckets(kernel_, {query(q), layout_.n_bytes, request_.radius, tables, lookups}, room_, lists_, before);
        // Ids are read when the lists are sorted.
        if (segment.ids.is_consecutive()) return;
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance)
            for (const std::uint32_t row : lists_.rows(distance)) segment.ids.prefetch(row);
    }

    // Puts the hits of the query with those of its other parts.
    void read(std::size_t q) {
        const Lookup* lookups = lookups_.of(q);
        std::size_t i = 0;
        for (const std::size_t p : tabled_) {
            const Part& part = manifest_.parts[p];
            const std::size_t rows = n_candidates(lookups + i);
            const auto before = [&](std::size_t j) { lookups_.fetch_later(q, i + j); };
            if (is_scan_cheaper(part, rows)) {
                scans_[p].push_back({static_cast<std::uint32_t>(q), 0});
                scanning_[q] = 1;
                for (std::size_t j = 0; j < n_steps_; ++j) before(j);
            } else if (lists_hits_ && rows <= RowLists::kMostRows) {
                list_part(p, q, rows, lookups + i, before);
                collector_.keep_lists(lists_, p, q);
            } else {
                for (std::size_t j = 0; j < n_steps_; ++j) {
                    before(j);
                    read_bucket(p, j, lookups[i + j].span, q);
                }
            }
            i += n_steps_;
        }
    }

    // Steps that flip bits, until the limit is reached or a scan is cheaper than what may be left.
    void later_steps(std::size_t q) {
        for (std::size_t t = n_tables_; t <= request_.radius && !collector_.found(q).full_within(t - 1); ++t) {
            const std::size_t last = std::min<std::size_t>(request_.radius, collector_.found(q).bound());
            // A cheap step may bring the bound down so far that few are left.
            const bool worth = last < t || costs_.steps(t, last) <= costs_.scan() ||
                               (request_.limit != kNoLimit && costs_.steps(t, t) <= costs_.scan() / 16);
            if (scanning_[q] || !worth) return scan_the_rest(q, t);
            for (const std::size_t p : tabled_) step(p, t, q);
        }
    }

    void scan_the_rest(std::size_t q, std::size_t t) {
        for (const std::size_t p : tabled_) {
            const auto& scans = scans_[p];
            const auto same = [&](const Scan& scan) { return scan.query == q; };
            if (std::none_of(scans.begin(), scans.end(), same))
                scans_[p].push_back({static_cast<std::uint32_t>(q), static_cast<std::uint32_t>(t)});
        }
    }

    void step(std::size_t p, std::size_t t, std::size_t q) {
        const Table& table = manifest_.parts[p].segment->tables[t % n_tables_];
        const std::size_t flips = t / n_tables_, length = table.key.length();
        if (flips > length) return;
        const std::uint32_t own = table.key.of(query(q));
        std::uint64_t mask = (std::uint64_t{1} << flips) - 1;
        Span spans[kKeys];
        while (mask < std::uint64_t{1} << length) {
            std::size_t count = 0;
            for (; count < kKeys && mask < std::uint64_t{1} << length; ++count) {
                spans[count].start = own ^ static_cast<std::uint32_t>(mask);
                __builtin_prefetch(table.offsets.data() + spans[count].start);
                // The next larger number with as many bits set (Gosper).
                const std::uint64_t lowest = mask & -mask, carried = mask + lowest;
                mask = (((mask ^ carried) >> 2) / lowest) | carried;
            }
            for (std::size_t i = 0; i < count; ++i) {
                spans[i] = bucket(table, spans[i].start);
                prefetch_bucket(table, spans[i], layout_.n_bytes);
            }
            for (std::size_t i = 0; i < count; ++i) read_bucket(p, t, spans[i], q);
        }
    }

    // Emits the hits of a bucket that step t reads and no earlier one.
    void read_bucket(std::size_t p, std::size_t t, Span span, std::size_t q) {
        const Segment& segment = *manifest_.parts[p].segment;
        const Table& table = segment.tables[t % n_tables_];
        ++collector_.cost(q).buckets;
        each_block_within(table.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint8_t* code = block.row(room_.positions[i]);
                if (is_first_step(segment, q, code, t))
                    collector_.emit(p, table.rows[start + room_.positions[i]], room_.distances[i], q);
            }
        });
    }

    // Calls found(first place, codes, how many of them are within the bound) for each block of a span; positions and
    // distances lie in room_.
    template <class Found>
    void each_block_within(const std::uint8_t* codes, Span span, std::size_t q, Found found) {
        const std::size_t n_bytes = layout_.n_bytes;
        collector_.cost(q).candidates += span.stop - span.start;
        for (std::size_t start = span.start; start < span.stop; start += kBlockRows) {
            const Codes block{codes + start * n_bytes, std::min<std::size_t>(kBlockRows, span.stop - start), n_bytes};
            const std::size_t count =
                kernel_.within(query(q), block, collector_.found(q).bound(), room_.positions, room_.distances);
            if (count) found(start, block, count);
        }
    }

    // Whether no step before t reads a row that step t reads.
    bool is_first_step(const Segment& segment, std::size_t q, const std::uint8_t* code, std::size_t t) const {
        if (t >= n_tables_) return first_step(segment, q, code) == t;
        const auto shares = [&](const Table& table) { return table.key.of(code) == table.key.of(query(q)); };
        return std::none_of(segment.tables.begin(), segment.tables.begin() + static_cast<std::ptrdiff_t>(t), shares);
    }

    // The step that reads this row first.
    std::size_t first_step(const Segment& segment, std::size_t q, const std::uint8_t* code) const {
        std::size_t first = std::size_t(-1);
        for (std::size_t j = 0; j < n_tables_; ++j) {
            const KeyBits& key = segment.tables[j].key;
            const auto flips = static_cast<std::size_t>(std::popcount(key.of(code) ^ key.of(query(q))));
            first = std::min(first, flips * n_tables_ + j);
        }
        return first;
    }

    // Reads every row of a part for all queries that want it, a block of rows at a time.
    void scan(std::size_t p) {
        const Part& part = manifest_.parts[p];
        if (scans_[p].empty()) return;
        const std::size_t most = std::min(kBlockRows, kBlockBytes / layout_.n_bytes);
        // With a limit, the first rows bring the bound down for all that follow: small blocks first.
        std::size_t block = request_.limit == kNoLimit ? most : most / 8;
        for (std::size_t start = 0; start < part.n_rows; start += block, block = std::min(2 * block, most)) {
            const Span span{static_cast<std::uint32_t>(start),
                            static_cast<std::uint32_t>(std::min(start + block, part.n_rows))};
            for (const Scan& scan : scans_[p]) scan_rows(p, span, scan);
        }
    }

    void scan_rows(std::size_t p, Span span, const Scan& scan) {
        const Part& part = manifest_.parts[p];
        const Segment& segment = *part.segment;
        const std::size_t q = scan.query;
        const bool plain = segment.tables.empty() && collector_.takes_all(part);
        each_block_within(segment.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            if (plain) {
                Hit* to = collector_.found(q).all().extend(count);
                for (std::size_t i = 0; i < count; ++i)
                    to[i] = hit_of(room_.distances[i], p, start + room_.positions[i]);
                return;
            }
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t place = start + room_.positions[i];
                if (scan.step && first_step(segment, q, block.row(room_.positions[i])) < scan.step) continue;
                const std::size_t row = segment.tables.empty() ? place : segment.tables[0].rows[place];
                collector_.emit(p, row, room_.distances[i], q);
            }
        });
    }

    const Layout& layout_;
    const Kernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const StepCosts& costs_;
    const std::size_t n_tables_;
    Collector collector_;
    bool scans_all_ = false;  // without a limit there is no hope of stopping early
    bool lists_hits_ = false;  // hits of buckets are collected in lists
    bool lists_all_ = false;   // and there are no others

    // Of the queries at hand.
    std::size_t first_query_ = 0;
    std::size_t n_queries_ = 0;
    std::vector<std::uint8_t> scanning_;    // whether some part with tables is to be scanned
    std::vector<std::vector<Scan>> scans_;  // of each part
    std::vector<std::size_t> tabled_;       // parts whose tables are used
    std::size_t n_steps_ = 0;               // that flip no bit

    // Memory that is used again and again.
    Lookups lookups_;
    RowLists lists_;
    KernelRoom room_;
};

}  // namespace hamtarget
