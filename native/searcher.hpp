// Searches of one manifest: the first `limit` rows within `radius`, exactly, or within a budget of rows read.
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
#include "kernel.hpp"
#include "manifest.hpp"
#include "multi_index.hpp"
#include "probe.hpp"
#include "request.hpp"
#include "rerank.hpp"
#include "result_writer.hpp"

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
          embedding_distance_(index.embedding()),
          scans_(manifest.parts.size()) {
        for (const Part& part : manifest.parts) n_rows_ += part.n_rows;
        scans_all_ = grows() && request.limit == kNoLimit && costs.steps(0, request.radius) > costs.scan();
        probes_ = request.logits && request.budget < n_rows_;
        lists_hits_ = !grows() && request.limit == kNoLimit && request.radius < RowLists::kMostLists;
        lists_all_ = lists_hits_ && manifest.parts.size() == 1 && !manifest.parts[0].segment->tables.empty();
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        const std::size_t begin = first;
        for (; first < last; first += n_queries_) {
            first_query_ = first;
            n_queries_ = std::min(kChunk, last - first);
            if (found_.size() < n_queries_) found_.resize(n_queries_);
            cost_.assign(n_queries_, {});
            probes_ ? probe_chunk(hits) : search_chunk(hits);
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
            bool listed = list(q, ahead);
            if (!listed || waits || request_.rerank) {
                found_[q].reset(request_.radius, request_.limit);
                listed ? keep_lists(0, q) : read(q, ahead);
                listed = false;
            }
            waits |= scanning_[q];
            if (waits) continue;
            if (listed) {
                write_lists(q, hits);
            } else {
                finish(q, hits);
                // The next query uses the same memory, which is in the cache.
                if (q + 1 < n_queries_) std::swap(found_[q], found_[q + 1]);
            }
            ++finished;
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

    // Rows in the query's own buckets of a part.
    std::size_t n_candidates(const Lookup* lookups) const {
        std::size_t sum = 0;
        for (std::size_t j = 0; j < n_steps_; ++j) sum += lookups[j].span.size();
        return sum;
    }

    static bool is_scan_cheaper(const Part& part, std::size_t n_candidates) {
        return n_candidates * kBucketRowCost > part.n_rows;
    }

    // Before bucket i of a query is read: the same one of later queries.
    HAMTARGET_INLINE void fetch_later(std::size_t q, std::size_t i, std::size_t ahead) {
        if (q + 2 * ahead < n_queries_) look_up(q + 2 * ahead, i);
        if (q + ahead < n_queries_) fetch(q + ahead, i);
    }

    // Puts all hits of the query into the lists, or returns false where that cannot be.
    bool list(std::size_t q, std::size_t ahead) {
        if (!lists_all_) return false;
        const Lookup* lookups = lookups_.data() + q * n_steps_;
        const std::size_t rows = n_candidates(lookups);
        if (is_scan_cheaper(manifest_.parts[0], rows) || rows > RowLists::kMostRows) return false;
        list_part(0, q, rows, lookups, [&](std::size_t j) __attribute__((always_inline)) { fetch_later(q, j, ahead); });
        return true;
    }

    template <class Before>
    HAMTARGET_INLINE void list_part(std::size_t p, std::size_t q, std::size_t rows, const Lookup* lookups,
                                    Before before) {
        const Segment& segment = *manifest_.parts[p].segment;
        cost_[q].buckets += static_cast<std::int64_t>(n_steps_);
        cost_[q].candidates += static_cast<std::int64_t>(rows);
        const auto tables = std::span(segment.tables).first(n_steps_);
        lists_.reset(request_.radius, rows, n_steps_);
        read_buckets(kernel_, {query(q), layout_.n_bytes, request_.radius, tables, lookups}, room_, lists_, before);
        if (!segment.ids.is_consecutive()) prefetch_ids(segment.ids);
    }

    // Puts the hits of the query with those of its other parts.
    void read(std::size_t q, std::size_t ahead) {
        std::size_t i = 0;
        for (const std::size_t p : tabled_) {
            const Part& part = manifest_.parts[p];
            const Lookup* lookups = lookups_.data() + q * lookup_tables_.size() + i;
            const std::size_t rows = n_candidates(lookups);
            const auto before = [&](std::size_t j) { fetch_later(q, i + j, ahead); };
            if (is_scan_cheaper(part, rows)) {
                scans_[p].push_back({static_cast<std::uint32_t>(q), 0});
                scanning_[q] = 1;
                for (std::size_t j = 0; j < n_steps_; ++j) before(j);
            } else if (lists_hits_ && rows <= RowLists::kMostRows) {
                list_part(p, q, rows, lookups, before);
                keep_lists(p, q);
            } else {
                for (std::size_t j = 0; j < n_steps_; ++j) {
                    before(j);
                    read_bucket(p, j, lookups[j].span, q);
                }
            }
            i += n_steps_;
        }
    }

    void prefetch_ids(const IdColumn& ids) {
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance)
            for (const std::uint32_t row : lists_.rows(distance)) ids.prefetch(row);
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
        prefetch_bytes(table.codes.data() + span.start * layout_.n_bytes, span.size() * layout_.n_bytes);
        prefetch_bytes(table.rows.data() + span.start, span.size() * sizeof table.rows[0]);
    }

    // Puts what is in the lists with the other hits of the query.
    void keep_lists(std::size_t p, std::size_t q) {
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance)
            for (const std::uint32_t row : lists_.rows(distance)) emit(p, row, static_cast<Distance>(distance), q);
    }

    // Emits the hits of a bucket that step t reads and no earlier one.
    void read_bucket(std::size_t p, std::size_t t, Span span, std::size_t q) {
        const Segment& segment = *manifest_.parts[p].segment;
        const Table& table = segment.tables[t % n_tables_];
        ++cost_[q].buckets;
        each_block_within(table.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint8_t* code = block.row(room_.positions[i]);
                if (is_first_step(segment, q, code, t))
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

    // Whether every row of the part that is near enough is a hit.
    bool takes_all(const Part& part) const {
        return request_.limit == kNoLimit && !part.deleted && !request_.filter;
    }

    bool allows(const Part& part, std::size_t row) const {
        return !part.is_deleted(row) && (!request_.filter || request_.filter->allows(part.segment->ids[row]));
    }

    void emit(std::size_t p, std::size_t row, Distance distance, std::size_t q) {
        const Part& part = manifest_.parts[p];
        if (!allows(part, row)) return;
        found_[q].offer(hit_of(distance, p, row), order_);
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
        const bool plain = segment.tables.empty() && takes_all(part);
        each_block_within(segment.codes.data(), span, q, [&](std::size_t start, Codes block, std::size_t count) {
            if (plain) {
                Hit* to = found_[q].all().extend(count);
                for (std::size_t i = 0; i < count; ++i) to[i] = hit_of(room_.distances[i], p, start + room_.positions[i]);
                return;
            }
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t place = start + room_.positions[i];
                if (scan.step && first_step(segment, q, block.row(room_.positions[i])) < scan.step) continue;
                emit(p, segment.tables.empty() ? place : segment.tables[0].rows[place], room_.distances[i], q);
            }
        });
    }

    void probe_chunk(Hits& hits) {
        for (std::size_t q = 0; q < n_queries_; ++q) {
            // A row may come out of several tables: only what is left after dropping repetitions can be limited.
            found_[q].reset(request_.radius, kNoLimit);
            probe(q);
            finish(q, hits);
        }
    }

    void probe(std::size_t q) {
        const float* logits = request_.logits + (first_query_ + q) * 8 * layout_.n_bytes;
        std::size_t left = request_.budget;
        buckets_.clear();
        tables_.clear();
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            const Part& part = manifest_.parts[p];
            if (part.segment->tables.empty()) {
                const std::size_t count = std::min(left, part.n_rows);
                scan_rows(p, {0, static_cast<std::uint32_t>(count)}, {static_cast<std::uint32_t>(q), 0});
                left -= count;
            }
            const std::size_t reachable = std::min(part.segment->tables.size(), std::size_t{request_.radius} + 1);
            for (std::size_t j = 0; j < reachable; ++j) {
                const KeyBits& key = part.segment->tables[j].key;
                // The cheaper of the bits that flip one of the bucket number.
                std::vector<float> weights(key.length(), std::numeric_limits<float>::infinity());
                for (std::size_t b = 0; b < key.width(); ++b) {
                    float& weight = weights[b % key.length()];
                    weight = std::min(weight, std::abs(logits[key.start() + b]));
                }
                buckets_.add_table(std::move(weights), (request_.radius - j) / n_tables_);
                tables_.emplace_back(p, j);
            }
        }
        while (left) {
            const auto next = buckets_.next();
            if (!next) break;
            const auto [p, j] = tables_[next->table];
            const Table& table = manifest_.parts[p].segment->tables[j];
            Span span = bucket(table, table.key.of(query(q)) ^ next->flipped);
            span.stop = static_cast<std::uint32_t>(std::min<std::size_t>(span.stop, span.start + left));
            // An empty bucket counts as a row: a budget bounds the time as well.
            left -= std::max<std::size_t>(1, span.stop - span.start);
            ++cost_[q].buckets;
            each_block_within(table.codes.data(), span, q, [&, p = p](std::size_t start, Codes, std::size_t count) {
                for (std::size_t i = 0; i < count; ++i)
                    emit(p, table.rows[start + room_.positions[i]], room_.distances[i], q);
            });
        }
    }

    void finish(std::size_t q, Hits& hits) {
        std::span<Hit> sorted = found_[q].sorted(sorter_, order_);
        if (probes_) {
            const auto different = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
            sorted = sorted.first(std::min(static_cast<std::size_t>(different), request_.limit));
        }
        if (request_.rerank) {
            rerank_into(q, sorted, hits);
        } else {
            write(sorted, hits.ids.extend(sorted.size()), hits.distances.extend(sorted.size()));
        }
        hits.end_query(cost_[q]);
    }

    // What is in the lists, as the result of the query: they are of the only part.
    void write_lists(std::size_t q, Hits& hits) {
        const Part& part = manifest_.parts[0];
        const bool takes_all = this->takes_all(part);
        std::size_t most = 0;
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance) most += lists_.size(distance);
        ResultWriter writer(kernel_, part.segment->ids, hits, most);
        for (std::size_t distance = 0; distance < lists_.n_lists(); ++distance) {
            std::span<std::uint32_t> rows = lists_.sorted(distance, kernel_);
            if (!takes_all) {
                const auto refused = [&](std::uint32_t row) { return !allows(part, row); };
                rows = {rows.begin(), std::remove_if(rows.begin(), rows.end(), refused)};
            }
            writer.write(rows, static_cast<Distance>(distance));
        }
        writer.finish();
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

    void rerank_into(std::size_t q, std::span<const Hit> found, Hits& hits) {
        const std::size_t width = layout_.embedding_bytes;
        const std::size_t query_width = embedding_distance_.kind().query_bytes();
        embedding_distance_.set_query(request_.embeddings + (first_query_ + q) * query_width);
        const auto embedding_of = [&](Hit hit) {
            return manifest_.parts[part_of(hit)].segment->embeddings.data() + row_of(hit) * width;
        };
        rerank(found, request_.rerank, order_, embedding_distance_, embedding_of, ranked_);
        cost_[q].comparisons = static_cast<std::int64_t>(found.size());
        for (const RankedHit& ranked : ranked_) {
            hits.ids.push(ranked.id);
            hits.distances.push(distance_of(ranked.hit));
            hits.embedding_distances.push(ranked.embedding_distance);
        }
    }

    const Layout& layout_;
    const Kernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const StepCosts& costs_;
    const std::size_t n_tables_;
    const HitOrder order_;
    EmbeddingDistance embedding_distance_;
    std::size_t n_rows_ = 0;
    bool scans_all_ = false;  // without a limit there is no hope of stopping early
    bool probes_ = false;
    bool lists_hits_ = false;  // hits of buckets are collected in lists
    bool lists_all_ = false;   // and there are no others

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
    std::vector<RankedHit> ranked_;
    BucketOrder buckets_;
    std::vector<std::pair<std::size_t, std::size_t>> tables_;  // part and table of each table in the order
    RowLists lists_;
    KernelRoom room_;
};

}  // namespace hamtarget
