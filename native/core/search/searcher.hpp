// Searches of one manifest: the first `limit` rows within `radius`, exactly.
//
// With m tables, step t reads the buckets of table t % m whose numbers differ from the query's in exactly t / m bits.
// After steps 0 to t every row within distance t has been read (pigeonhole: a row that differs by at most t / m bits
// in none of the first t % m + 1 substrings, and by less in none of the others, is farther than t). So a search within
// a radius takes the steps 0 to radius, a search for the k nearest stops at the first t within which there are k, and
// any number of tables serves any radius. A row's own first step follows from its code: it is emitted there and nowhere
// else, without a set of visited rows. Parts may have different numbers of tables: a step is taken in each of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/code_kernel.hpp"
#include "../hits.hpp"
#include "../manifest.hpp"
#include "../multi_index.hpp"
#include "collector.hpp"
#include "lookups.hpp"
#include "read_ahead.hpp"
#include "request.hpp"
#include "row_lists.hpp"
#include "search_plan.hpp"

namespace hamtarget {

// Searches for some of the queries of a request. Each thread has its own.
//
// Queries are searched in chunks (see search_chunk, which names the stages). `q` counts the queries of the chunk, `p`
// the parts of the manifest, `t` the steps, `j` the tables.
class Searcher {
  public:
    // Queries that read a block of rows while it is in the cache.
    static constexpr std::size_t kChunk = 256;

    Searcher(const MultiIndex& index, const Manifest& manifest, const Request& request, const SearchPlan& plan)
        : layout_(index.layout()),
          kernel_(index.kernel()),
          manifest_(manifest),
          request_(request),
          plan_(plan),
          work_(request.limits),
          collector_(index, manifest, request, work_),
          lookups_(plan_.own_tables(manifest)) {
        chunk_.scans.resize(manifest.parts.size());
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        for (std::size_t start = first; start < last; start += kChunk) {
            const std::size_t count = std::min(kChunk, last - start);
            search_chunk(start, count, hits);
            if (start == first) hits.expect(last - start - count);
        }
        work_.settle();
    }

  private:
    using Collecting = SearchPlan::Collecting;
    using TabledPart = SearchPlan::TabledPart;

    // Looking a bucket up takes as long as scanning about so many rows, or more where it is far away in memory.
    static constexpr std::size_t kBucketSteps = 64;

    // Codes that are fetched before the first of them is read.
    static constexpr std::size_t kFetchedCodes = 64;

    // A query that will read all rows of a part.
    struct Scan {
        std::uint32_t query;
        std::uint32_t step;  // rows of earlier steps have been emitted
        std::uint32_t first_lookup;
    };

    // The queries at hand, and how far they are.
    struct Chunk {
        std::size_t first = 0;  // of the queries of the request
        std::size_t n_queries = 0;
        std::size_t n_finished = 0;            // queries whose results are written, from the first on
        std::vector<std::vector<Scan>> scans;  // [part]: scans that are still to come
        std::vector<std::uint8_t> is_scanned;  // [q]: 1 if some part with tables is scanned for the query
    };

    // How queries go on once their own buckets have been read. Results are written in the order of the queries, so one
    // query that has to wait holds up all that follow.
    enum class Progress {
        finishes,  // nothing more is to be read: the result is written at once
        waits,     // for flipped buckets or a scan, or for a query before it
    };

    const std::uint8_t* query(std::size_t q) const { return request_.queries.row(chunk_.first + q); }

    // Search for the queries `first` to `first + n_queries - 1` of the request.
    //
    // Each stage leaves some queries unfinished: reading their own buckets may show that a scan is cheaper, which then
    // is put on a list. After the stage `scan`, every hit of every unfinished query is with the collector.
    void search_chunk(std::size_t first, std::size_t n_queries, Hits& hits) {
        begin_chunk(first, n_queries);
        read_own_buckets(hits);
        if (plan_.flips())
            for (std::size_t q = 0; q < n_queries; ++q) read_flipped_buckets(q);
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) scan(p);
        for (; chunk_.n_finished < n_queries; ++chunk_.n_finished) collector_.finish(chunk_.n_finished, hits);
    }

    void begin_chunk(std::size_t first, std::size_t n_queries) {
        chunk_.first = first;
        chunk_.n_queries = n_queries;
        chunk_.n_finished = 0;
        chunk_.is_scanned.assign(n_queries, 0);
        for (auto& scans : chunk_.scans) scans.clear();
        for (const std::size_t p : plan_.scanned)
            for (std::uint32_t q = 0; q < n_queries; ++q) chunk_.scans[p].push_back({q, 0, 0});
        collector_.start(first, n_queries);
        lookups_.start(request_.queries.slice(first, n_queries));
    }

    // Take the steps that flip no bit, for all queries: one bucket of each table. Finish the queries that nothing holds
    // up.
    void read_own_buckets(Hits& hits) {
        const bool all_wait = plan_.flips() || !plan_.scanned.empty();
        Progress progress = all_wait ? Progress::waits : Progress::finishes;
        for (std::size_t q = 0; q < chunk_.n_queries; ++q) {
            const bool is_listed = plan_.collecting == Collecting::in_lists_alone && list_all(q);
            if (is_listed && progress == Progress::finishes && !request_.rerank) {
                collector_.write_lists(lists_, q, hits);
                ++chunk_.n_finished;
                continue;
            }
            collector_.found(q).reset(request_.radius, request_.limit);
            is_listed ? collector_.keep_lists(lists_, 0, q) : read_tabled_parts(q);
            if (chunk_.is_scanned[q]) progress = Progress::waits;
            if (progress == Progress::waits) continue;
            collector_.finish(q, hits);
            collector_.pass_on(q);
            ++chunk_.n_finished;
        }
    }

    // Count the rows in the query's own buckets of a part.
    static std::size_t n_candidates(const Lookup* lookups, const TabledPart& from) {
        std::size_t sum = 0;
        for (std::size_t j = 0; j < from.n_own_buckets; ++j) sum += lookups[j].span.size();
        return sum;
    }

    bool is_scan_cheaper(const Part& part, std::size_t n_candidates) const {
        const double entry = kSearchCosts.entry + kSearchCosts.entry_byte * static_cast<double>(layout_.n_bytes);
        return static_cast<double>(n_candidates) * entry > scan_cost(part.n_codes(), layout_.n_bytes);
    }

    // Put all hits of the query into the lists, or return false if that is too much.
    bool list_all(std::size_t q) {
        const TabledPart& from = plan_.tabled[0];
        const std::size_t rows = n_candidates(lookups_.of(q), from);
        if (is_scan_cheaper(manifest_.parts[0], rows) || rows > RowLists::kMostRows) return false;
        list_part(from, q, 0, rows);
        return true;
    }

    // Put the hits in the query's own buckets of one part into the lists. `first` is the first lookup of the part,
    // `rows` the rows in these buckets.
    void list_part(const TabledPart& from, std::size_t q, std::size_t first, std::size_t rows) {
        const Segment& segment = *manifest_.parts[from.part].segment;
        collector_.cost(q).buckets += static_cast<std::int64_t>(from.n_own_buckets);
        collector_.cost(q).candidates += static_cast<std::int64_t>(rows);
        work_.read_rows(rows);
        work_.spend(from.n_own_buckets * kBucketSteps);
        lists_.reset(request_.radius, rows, from.n_own_buckets);
        const OwnBuckets buckets{.query = query(q),
                                 .n_bytes = layout_.n_bytes,
                                 .radius = request_.radius,
                                 .tables = segment.tables.data(),
                                 .n_tables = from.n_own_buckets,
                                 .lookups = lookups_.of(q) + first,
                                 .later = lookups_.later(q, first)};
        kernel_.read_buckets(buckets, room_, lists_.view());
        if (!segment.shared.empty()) lists_.take_rows(segment.shared, kernel_, work_);
        // Ids are read when the lists are sorted.
        if (segment.ids.is_consecutive()) return;
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance)
            for (const RowNumber row : lists_.rows(distance)) segment.ids.prefetch(row);
    }

    // Emit the hits in the query's own buckets of all parts with tables, or plan scans where they are cheaper.
    void read_tabled_parts(std::size_t q) {
        const Lookup* lookups = lookups_.of(q);
        for (const TabledPart& from : plan_.tabled) {
            const std::size_t p = from.part, first = from.first_lookup, rows = n_candidates(lookups + first, from);
            if (is_scan_cheaper(manifest_.parts[p], rows)) {
                chunk_.scans[p].push_back({static_cast<std::uint32_t>(q), 0, 0});
                chunk_.is_scanned[q] = 1;
                for (std::size_t j = 0; j < from.n_own_buckets; ++j) lookups_.fetch_later(q, first + j);
            } else if (plan_.collecting != Collecting::one_by_one && rows <= RowLists::kMostRows) {
                list_part(from, q, first, rows);
                collector_.keep_lists(lists_, p, q);
            } else {
                for (std::size_t j = 0; j < from.n_own_buckets; ++j) {
                    lookups_.fetch_later(q, first + j);
                    read_bucket(from, j, lookups[first + j].span, q);
                }
                read_fetched(from, q);
            }
        }
    }

    // Take the steps that flip bits, until the limit is reached or a scan is cheaper than what may be left.
    void read_flipped_buckets(std::size_t q) {
        const bool has_limit = request_.limit != kNoLimit;
        for (std::size_t t = plan_.first_flip; t <= request_.radius && !collector_.found(q).full_within(t - 1); ++t) {
            const std::size_t last = std::min<std::size_t>(request_.radius, collector_.found(q).bound());
            // Cheap steps may bring the bound down so far that few are left. If not, little is lost.
            const bool worth = last < t || plan_.steps(t, last) <= plan_.scan() ||
                               (has_limit && plan_.steps(0, t) <= plan_.scan() / 40);
            if (chunk_.is_scanned[q] || !worth) return scan_the_rest(q, t);
            // Without a limit nothing can end the search before the last step, and buckets of all steps are fetched ahead.
            const std::size_t until = has_limit ? t : request_.radius;
            for (const TabledPart& from : plan_.tabled) {
                for (std::size_t step = std::max(t, from.n_tables); step <= until; ++step) take_step(from, step, q);
                read_ahead_.drain([&](const QueuedBucket& bucket) { read_bucket(from, bucket.step, bucket.span, q); });
                read_fetched(from, q);
            }
            t = until;
        }
    }

    // Plan scans of the parts that are not scanned for this query yet. Rows of steps before t have been emitted, and so
    // have all rows in the query's own buckets.
    void scan_the_rest(std::size_t q, std::size_t t) {
        for (const TabledPart& from : plan_.tabled) {
            // Own buckets of radius + 1 tables have every hit.
            if (from.n_own_buckets > request_.radius) continue;
            auto& scans = chunk_.scans[from.part];
            const auto same = [&](const Scan& scan) { return scan.query == q; };
            if (std::none_of(scans.begin(), scans.end(), same))
                scans.push_back({static_cast<std::uint32_t>(q), static_cast<std::uint32_t>(std::max(t, from.n_own_buckets)),
                                 static_cast<std::uint32_t>(from.first_lookup)});
        }
    }

    // Queue the buckets of a step to be read; some of them are read at once.
    void take_step(const TabledPart& from, std::size_t t, std::size_t q) {
        const auto& tables = manifest_.parts[from.part].segment->tables;
        const Table& table = tables[t % tables.size()];
        const std::size_t flips = t / tables.size(), length = table.key.length();
        if (flips > length) return;
        const BucketNumber own = own_numbers(from, q)[t % tables.size()].number;
        std::uint64_t mask = (std::uint64_t{1} << flips) - 1;
        while (mask < std::uint64_t{1} << length) {
            work_.spend(kBucketSteps);
            read_ahead_.push({&table, flipped(own, static_cast<std::uint32_t>(mask)), static_cast<std::uint32_t>(t), {}},
                             layout_.n_bytes,
                             [&](const QueuedBucket& bucket) { read_bucket(from, bucket.step, bucket.span, q); });
            // The next larger number with as many bits set (Gosper).
            const std::uint64_t lowest = mask & -mask, carried = mask + lowest;
            mask = (((mask ^ carried) >> 2) / lowest) | carried;
        }
    }

    // Emit the hits of a bucket that step t reads and no earlier one.
    void read_bucket(const TabledPart& from, std::size_t t, Span span, std::size_t q) {
        const Segment& segment = *manifest_.parts[from.part].segment;
        const Table& table = segment.tables[t % segment.tables.size()];
        ++collector_.cost(q).buckets;
        if (table.has_excerpts()) return read_excerpts(from, t, span, q);
        each_block_within(table.codes, span, q, [&](std::size_t start, Codes block, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint8_t* code = block.row(room_.positions[i]);
                if (is_first_step(segment, own_numbers(from, q), code, t))
                    collector_.emit_code(from.part, table.rows[start + room_.positions[i]], room_.distances[i], q);
            }
        });
    }

    // Fetch the codes of a bucket of excerpts that may be near, to be read by `read_fetched`.
    void read_excerpts(const TabledPart& from, std::size_t t, Span span, std::size_t q) {
        const Segment& segment = *manifest_.parts[from.part].segment;
        const std::size_t n_tables = segment.tables.size();
        const Table& table = segment.tables[t % n_tables];
        const Excerpts& excerpts = table.excerpts;
        std::uint8_t wanted[kMaxCodeBytes];
        excerpts.copy(query(q), layout_.n_bytes, wanted);
        // What differs in the substring differs besides.
        const std::size_t flips = excerpts.is_apart ? t / n_tables : 0;
        collector_.cost(q).candidates += span.stop - span.start;
        for (std::size_t start = span.start; start < span.stop; start += kBlockRows) {
            const std::size_t count = std::min<std::size_t>(kBlockRows, span.stop - start);
            work_.read_rows(count);
            const std::size_t bound = collector_.found(q).bound();
            if (bound < flips) return;
            const std::size_t n_near =
                kernel_.near_excerpts(wanted, excerpts.n_bytes, excerpts.entries + start * excerpts.entry_bytes(),
                                      count, static_cast<Distance>(bound - flips), room_.positions);
            for (std::size_t i = 0; i < n_near; ++i) {
                const std::uint32_t place = std::min(room_.positions[i], table.n_rows - 1);
                __builtin_prefetch(table.codes + std::size_t{place} * layout_.n_bytes);
                fetched_places_[n_fetched_] = place;
                fetched_steps_[n_fetched_] = static_cast<std::uint32_t>(t);
                if (++n_fetched_ == kFetchedCodes) read_fetched(from, q);
            }
        }
    }

    // Emit the hits among the codes that were fetched.
    void read_fetched(const TabledPart& from, std::size_t q) {
        if (n_fetched_ == 0) return;
        const Segment& segment = *manifest_.parts[from.part].segment;
        const Codes codes{segment.codes.data(), segment.n_codes, layout_.n_bytes};
        const std::size_t before = collector_.n_found(q);
        std::uint32_t positions[kFetchedCodes + kKernelSlack];
        Distance distances[kFetchedCodes + kKernelSlack];
        const std::size_t count = kernel_.within_places(query(q), codes, fetched_places_, n_fetched_,
                                                        collector_.found(q).bound(), positions, distances);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t place = fetched_places_[positions[i]];
            if (is_first_step(segment, own_numbers(from, q), codes.row(place), fetched_steps_[positions[i]]))
                collector_.emit_code(from.part, segment.code_at(place), distances[i], q);
        }
        n_fetched_ = 0;
        collector_.count_from(before, q);
    }

    // Call found(first place, codes, number of rows within the bound) for each block of a span that has such rows.
    // Their positions and distances lie in room_.
    template <class Found>
    void each_block_within(const std::uint8_t* codes, Span span, std::size_t q, Found found) {
        const std::size_t n_bytes = layout_.n_bytes;
        collector_.cost(q).candidates += span.stop - span.start;
        for (std::size_t start = span.start; start < span.stop; start += kBlockRows) {
            const Codes block{codes + start * n_bytes, std::min<std::size_t>(kBlockRows, span.stop - start), n_bytes};
            work_.read_rows(block.n_rows);
            const std::size_t count =
                kernel_.within(query(q), block, collector_.found(q).bound(), room_.positions, room_.distances);
            if (!count) continue;
            const std::size_t before = collector_.n_found(q);
            found(start, block, count);
            collector_.count_from(before, q);
        }
    }

    // Return the numbers of the query's own buckets of a part, one for each table that is read.
    const Lookup* own_numbers(const TabledPart& from, std::size_t q) const { return lookups_.of(q) + from.first_lookup; }

    // Tell whether no step before t reads a row that step t reads.
    static bool is_first_step(const Segment& segment, const Lookup* own, const std::uint8_t* code, std::size_t t) {
        if (t >= segment.tables.size()) return first_step(segment, own, code) == t;
        for (std::size_t j = 0; j < t; ++j)
            if (segment.tables[j].key.bucket_of(code) == own[j].number) return false;
        return true;
    }

    // Return the step that reads this row first. The query's own buckets of all tables are known.
    static std::size_t first_step(const Segment& segment, const Lookup* own, const std::uint8_t* code) {
        const std::size_t n_tables = segment.tables.size();
        std::size_t first = std::size_t(-1);
        for (std::size_t j = 0; j < n_tables; ++j) {
            const std::uint32_t differing = raw(segment.tables[j].key.bucket_of(code)) ^ raw(own[j].number);
            first = std::min(first, static_cast<std::size_t>(std::popcount(differing)) * n_tables + j);
        }
        return first;
    }

    // Read every row of a part for all queries that want it, a block of rows at a time.
    void scan(std::size_t p) {
        const Part& part = manifest_.parts[p];
        if (chunk_.scans[p].empty()) return;
        const std::size_t most = std::min(kBlockRows, kBlockBytes / layout_.n_bytes);
        // With a limit, the first rows bring the bound down for all that follow: small blocks first.
        std::size_t block = request_.limit == kNoLimit ? most : most / 8;
        const std::size_t n_codes = part.n_codes();
        for (std::size_t start = 0; start < n_codes; start += block, block = std::min(2 * block, most)) {
            const Span span{static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(std::min(start + block, n_codes))};
            for (const Scan& scan : chunk_.scans[p]) scan_rows(p, span, scan);
        }
    }

    void scan_rows(std::size_t p, Span span, const Scan& scan) {
        const Part& part = manifest_.parts[p];
        const Segment& segment = *part.segment;
        const std::size_t q = scan.query;
        const Lookup* own = scan.step ? lookups_.of(q) + scan.first_lookup : nullptr;
        const bool plain = segment.tables.empty() && request_.limit == kNoLimit && collector_.takes_all(part);
        each_block_within(segment.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            if (plain) {
                Hit* to = collector_.found(q).all().extend(count);
                for (std::size_t i = 0; i < count; ++i)
                    to[i] = hit_of(room_.distances[i], p, row_number(start + room_.positions[i]));
                return;
            }
            for (std::size_t i = 0; i < count; ++i) {
                // The bound may have shrunk since the block was read.
                if (room_.distances[i] > collector_.found(q).bound()) continue;
                if (scan.step && first_step(segment, own, block.row(room_.positions[i])) < scan.step) continue;
                collector_.emit_code(p, segment.code_at(start + room_.positions[i]), room_.distances[i], q);
            }
        });
    }

    const Layout& layout_;
    const CodeKernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const SearchPlan& plan_;
    Work work_;
    Collector collector_;
    Chunk chunk_;

    // Memory that is used again and again. lists_ holds the hits of the query and part that list_part was called for
    // last, room_ what the kernel wrote last.
    Lookups lookups_;
    RowLists lists_;
    KernelRoom room_;
    ReadAhead read_ahead_;
    // Codes that excerpts did not rule out: their places in the first table, and the steps that came to them.
    std::uint32_t fetched_places_[kFetchedCodes];
    std::uint32_t fetched_steps_[kFetchedCodes];
    std::size_t n_fetched_ = 0;
};

}  // namespace hamtarget
