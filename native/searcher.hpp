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
#include <optional>
#include <utility>
#include <vector>

#include "bucket.hpp"
#include "hits.hpp"
#include "manifest.hpp"
#include "multi_index.hpp"
#include "request.hpp"
#include "rerank.hpp"

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
          order_(manifest),
          reranker_(manifest, request, index.embedding()),
          scans_(manifest.parts.size()) {
        scans_all_ = grows() && request.limit == kNoLimit && costs.steps(0, request.radius) > costs.scan();
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        const std::size_t begin = first;
        for (; first < last; first += n_queries_) {
            first_query_ = first;
            n_queries_ = std::min(kChunk, last - first);
            if (found_.size() < n_queries_) found_.resize(n_queries_);
            cost_.assign(n_queries_, {});
            search_chunk(hits);
            if (first == begin) hits.expect(n_queries_, last - first - n_queries_);
        }
    }

  private:
    // So many queries read a block of rows while it is in the cache.
    static constexpr std::size_t kChunk = 256;
    // So many buckets are being fetched at a time.
    static constexpr std::size_t kAhead = 8;
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
        for (std::size_t q = finished; q < n_queries_; ++q) finish(q, hits);
    }

    // Steps that flip no bit, for all queries: one bucket of each table. While a bucket is read, the same bucket of a
    // later query is being fetched from memory, and the place of an even later one's in the directory. A CPU drops what
    // it is asked to fetch while too much is under way: so it is asked a little at a time.
    // Returns how many queries, from the first on, are finished.
    std::size_t first_steps(Hits& hits) {
        lookup_tables_.clear();
        n_steps_ = std::min<std::size_t>(request_.radius + 1u, n_tables_);
        for (const std::size_t p : tabled_)
            for (std::size_t j = 0; j < n_steps_; ++j) lookup_tables_.push_back(&manifest_.parts[p].segment->tables[j]);
        const std::size_t n_lookups = lookup_tables_.size();
        const std::size_t ahead = n_lookups ? std::clamp<std::size_t>(kAhead / n_lookups, 1, kAhead) : 0;
        lookups_.resize(n_queries_ * n_lookups);
        for (std::size_t q = 0; q < std::min(2 * ahead, n_queries_); ++q)
            for (std::size_t i = 0; i < n_lookups; ++i) look_up(q, i);
        for (std::size_t q = 0; q < std::min(ahead, n_queries_); ++q)
            for (std::size_t i = 0; i < n_lookups; ++i) fetch(q, i);

        // Queries that wait for a scan, and those after them, are finished in turn when it is done.
        bool waits = grows() || tabled_.size() < manifest_.parts.size();
        std::size_t finished = 0;
        for (std::size_t q = 0; q < n_queries_; ++q) {
            found_[q].reset(request_.radius, request_.limit);
            read(q, ahead);
            waits |= scanning_[q];
            if (waits) continue;
            finish(q, hits);
            ++finished;
            // The next query uses the same memory, which is in the cache.
            if (q + 1 < n_queries_) std::swap(found_[q], found_[q + 1]);
        }
        return finished;
    }

    HAMTARGET_INLINE void look_up(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * lookup_tables_.size() + i];
        lookup.key = lookup_tables_[i]->key.of(query(q));
        __builtin_prefetch(lookup_tables_[i]->offsets.data() + lookup.key);
    }

    HAMTARGET_INLINE void fetch(std::size_t q, std::size_t i) {
        Lookup& lookup = lookups_[q * lookup_tables_.size() + i];
        lookup.span = bucket(*lookup_tables_[i], lookup.key);
        prefetch(*lookup_tables_[i], lookup.span);
    }

    void read(std::size_t q, std::size_t ahead) {
        std::size_t i = 0;
        for (const std::size_t p : tabled_) {
            const Lookup* lookups = lookups_.data() + q * lookup_tables_.size() + i;
            double rows = 0;
            for (std::size_t j = 0; j < n_steps_; ++j) rows += static_cast<double>(lookups[j].span.size());
            const bool scans = rows * kBucketRowCost > static_cast<double>(manifest_.parts[p].n_rows);
            if (scans) {
                scans_[p].push_back({static_cast<std::uint32_t>(q), 0});
                scanning_[q] = 1;
            }
            for (std::size_t j = 0; j < n_steps_; ++j, ++i) {
                if (q + 2 * ahead < n_queries_) look_up(q + 2 * ahead, i);
                if (q + ahead < n_queries_) fetch(q + ahead, i);
                if (!scans) read_bucket(p, j, lookups[j].span, q, lookups);
            }
        }
    }

    // Steps that flip bits, until the limit is reached or a scan is cheaper than what may be left.
    void later_steps(std::size_t q) {
        for (std::size_t t = n_tables_; t <= request_.radius && !found_[q].full_within(t - 1); ++t) {
            const std::size_t last = std::min<std::size_t>(request_.radius, found_[q].bound());
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
                prefetch(table, spans[i]);
            }
            for (std::size_t i = 0; i < count; ++i) read_bucket(p, t, spans[i], q);
        }
    }

    static Span bucket(const Table& table, std::uint32_t key) { return {table.offsets[key], table.offsets[key + 1]}; }

    HAMTARGET_INLINE void prefetch(const Table& table, Span span) const {
        if (span.start == span.stop) return;
        prefetch_bytes(table.codes.data() + std::size_t{span.start} * layout_.n_bytes,
                       std::size_t{span.stop - span.start} * layout_.n_bytes);
        prefetch_bytes(table.rows.data() + span.start, std::size_t{span.stop - span.start} * sizeof table.rows[0]);
    }

    // Emits the hits of a bucket that step t reads and no earlier one.
    // `lookups`: of the query, in the tables of this part, where step t flips no bit.
    void read_bucket(std::size_t p, std::size_t t, Span span, std::size_t q, const Lookup* lookups = nullptr) {
        const Part& part = manifest_.parts[p];
        const Segment& segment = *part.segment;
        const Table& table = segment.tables[t % n_tables_];
        ++cost_[q].buckets;
        // What nearly every hit takes.
        if (lookups && request_.limit == kNoLimit && !part.deleted && !request_.filter) {
            Growing<Hit>& all = found_[q].all();
            const std::size_t before = all.size();
            const std::size_t count = span.size();
            cost_[q].candidates += static_cast<std::int64_t>(count);
            new_hits(kernel_, {query(q), request_.radius, p, std::span(segment.tables).first(t), lookups},
                     {table.codes.data() + span.start * layout_.n_bytes, count, layout_.n_bytes},
                     table.rows.data() + span.start, room_, all);
            // Ids are read when the hits of all queries at hand are sorted.
            if (!segment.ids.is_consecutive())
                for (std::size_t i = before; i < all.size(); ++i) segment.ids.prefetch(row_of(all[i]));
            return;
        }
        each_block_within(table.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint8_t* code = block.row(room_.positions[i]);
                if (first_step(segment, q, code) == t)
                    emit(p, table.rows[start + room_.positions[i]], room_.distances[i], q);
            }
        });
    }

    // Calls found(first place, codes, how many of them are within the bound) for each block of a span; positions and
    // distances lie in room_.
    template <class Found>
    void each_block_within(const std::uint8_t* codes, Span span, std::size_t q, Found found) {
        const std::size_t n_bytes = layout_.n_bytes;
        cost_[q].candidates += span.stop - span.start;
        for (std::size_t start = span.start; start < span.stop; start += kBlockRows) {
            const Codes block{codes + start * n_bytes, std::min<std::size_t>(kBlockRows, span.stop - start), n_bytes};
            const std::size_t count =
                kernel_.within(query(q), block, found_[q].bound(), room_.positions, room_.distances);
            if (count) found(start, block, count);
        }
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

    void emit(std::size_t p, std::size_t row, Distance distance, std::size_t q) {
        const Part& part = manifest_.parts[p];
        if (part.is_deleted(row)) return;
        if (request_.filter && !request_.filter->allows(part.segment->ids[row])) return;
        found_[q].offer(hit_of(distance, p, row), order_);
    }

    // Reads every row of a part for all queries that want it, a block of rows at a time.
    void scan(std::size_t p) {
        const Part& part = manifest_.parts[p];
        if (scans_[p].empty()) return;
        const std::size_t block = std::min(kBlockRows, kBlockBytes / layout_.n_bytes);
        for (std::size_t start = 0; start < part.n_rows; start += block) {
            const Span span{static_cast<std::uint32_t>(start),
                            static_cast<std::uint32_t>(std::min(start + block, part.n_rows))};
            for (const Scan& scan : scans_[p]) scan_rows(p, span, scan);
        }
    }

    void scan_rows(std::size_t p, Span span, const Scan& scan) {
        const Segment& segment = *manifest_.parts[p].segment;
        const std::size_t q = scan.query;
        each_block_within(segment.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t place = start + room_.positions[i];
                if (scan.step && first_step(segment, q, block.row(room_.positions[i])) < scan.step) continue;
                emit(p, segment.tables.empty() ? place : segment.tables[0].rows[place], room_.distances[i], q);
            }
        });
    }

    void finish(std::size_t q, Hits& hits) {
        const std::span<const Hit> sorted = found_[q].sorted(sorter_, order_);
        if (request_.rerank) {
            cost_[q].comparisons = static_cast<std::int64_t>(sorted.size());
            reranker_.append(first_query_ + q, sorted, hits);
        } else {
            write(sorted, hits.ids.extend(sorted.size()), hits.distances.extend(sorted.size()));
        }
        hits.end_query(cost_[q]);
    }

    void write(std::span<const Hit> hits, std::int64_t* ids, Distance* distances) const {
        const std::size_t count = hits.size();
        for (std::size_t i = 0; i < count; ++i) distances[i] = distance_of(hits[i]);
        if (manifest_.parts.size() == 1 && manifest_.parts[0].segment->ids.is_consecutive()) {
            const std::int64_t base = manifest_.parts[0].segment->ids.base();
            for (std::size_t i = 0; i < count; ++i) ids[i] = base + static_cast<std::int64_t>(row_of(hits[i]));
        } else {
            for (std::size_t i = 0; i < count; ++i) ids[i] = order_.id(hits[i]);
        }
    }

    const Layout& layout_;
    const Kernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const StepCosts& costs_;
    const std::size_t n_tables_;
    const HitOrder order_;
    Reranker reranker_;
    bool scans_all_ = false;  // without a limit there is no hope of stopping early

    // Of the queries at hand.
    std::size_t first_query_ = 0;
    std::size_t n_queries_ = 0;
    std::vector<FirstHits> found_;
    std::vector<Cost> cost_;
    std::vector<std::uint8_t> scanning_;    // whether some part with tables is to be scanned
    std::vector<std::vector<Scan>> scans_;  // of each part
    std::vector<std::size_t> tabled_;       // parts whose tables are used
    std::size_t n_steps_ = 0;               // that flip no bit

    // Memory that is used again and again.
    std::vector<const Table*> lookup_tables_;  // tables in which every query has one bucket read
    std::vector<Lookup> lookups_;              // of each query, for each of them
    HitSorter sorter_;
    KernelRoom room_;
};

}  // namespace hamtarget
