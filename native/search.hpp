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
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "hits.hpp"
#include "manifest.hpp"
#include "multi_index.hpp"
#include "probe.hpp"
#include "rerank.hpp"

namespace hamtarget {

// The ids that may be hits: all of them, those in a list, or those whose place in a mask is set.
class Filter {
  public:
    Filter() = default;

    // `ids` ascend.
    static Filter of_ids(const std::int64_t* ids, std::size_t count) {
        Filter filter;
        filter.kind_ = Kind::kList, filter.ids_ = ids, filter.size_ = count;
        return filter;
    }
    // Element i of the mask says whether id i is allowed; other ids are not.
    static Filter of_mask(const bool* mask, std::size_t size) {
        Filter filter;
        filter.kind_ = Kind::kMask, filter.mask_ = mask, filter.size_ = size;
        return filter;
    }

    bool allows(std::int64_t id) const {
        if (kind_ == Kind::kAll) return true;
        if (kind_ == Kind::kList) return std::binary_search(ids_, ids_ + size_, id);
        return id >= 0 && static_cast<std::uint64_t>(id) < size_ && mask_[id];
    }

  private:
    enum class Kind { kAll, kList, kMask } kind_ = Kind::kAll;
    const std::int64_t* ids_ = nullptr;
    const bool* mask_ = nullptr;
    std::size_t size_ = 0;
};

struct Request {
    Codes queries{};
    Distance radius = 0;
    std::size_t limit = kNoLimit;
    Filter filter;
    std::size_t rerank = 0;                     // closest so many hits by embedding; 0: order by code
    const std::uint8_t* embeddings = nullptr;   // of the queries, where hits are re-ranked
    const float* logits = nullptr;              // of the queries, where buckets are probed: n_bits each
    std::size_t budget = 0;                     // rows that probing may read for a query
};

// Costs, in rows of a linear scan (about 0.15 ns): a bucket far away in memory, and a row in it.
inline constexpr double kBucketCost = 100;
inline constexpr double kBucketRowCost = 2;

// What the steps of a search cost, known before it starts.
class StepCosts {
  public:
    StepCosts(const Layout& layout, const Manifest& manifest, std::size_t radius) : until_(radius + 2, 0.0) {
        for (const Part& part : manifest.parts) {
            const auto& tables = part.segment->tables;
            if (tables.empty()) continue;
            scan_ += static_cast<double>(part.n_rows);
            for (std::size_t t = 0; t <= radius; ++t) {
                const Table& table = tables[t % layout.n_tables];
                until_[t + 1] += choose(table.key.length(), t / layout.n_tables) *
                                 (kBucketCost + kBucketRowCost * table.mean_bucket);
            }
        }
        for (std::size_t t = 0; t <= radius; ++t) until_[t + 1] += until_[t];
    }

    double steps(std::size_t first, std::size_t last) const { return until_[last + 1] - until_[first]; }
    double scan() const { return scan_; }

  private:
    static double choose(std::size_t n, std::size_t k) {
        if (k > n) return 0;
        double result = 1;
        for (std::size_t i = 0; i < k; ++i) result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
        return result;
    }

    double scan_ = 0;
    std::vector<double> until_;  // [t]: of the steps before t
};

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
          embedding_distance_(index.embedding()),
          scans_(manifest.parts.size()) {}

    void run(std::size_t first, std::size_t last, Hits& hits) {
        for (; first < last; first += kChunk) {
            first_query_ = first;
            n_queries_ = std::min(kChunk, last - first);
            found_.resize(std::max(found_.size(), n_queries_));
            cost_.assign(n_queries_, {});
            request_.logits && request_.budget < n_rows() ? probe_chunk() : search_chunk();
            for (std::size_t q = 0; q < n_queries_; ++q) finish(q, hits);
        }
    }

  private:
    // So many queries read a block of rows while it is in the cache, and so many look up buckets side by side.
    static constexpr std::size_t kChunk = 256;
    static constexpr std::size_t kGroup = 16;
    static constexpr std::size_t kKeys = 32;

    struct Span {
        std::uint32_t start, stop;
    };
    struct Scan {
        std::uint32_t query;
        std::uint32_t step;  // rows of earlier steps have been emitted
    };

    const std::uint8_t* query(std::size_t q) const { return request_.queries.row(first_query_ + q); }

    std::size_t n_rows() const {
        std::size_t sum = 0;
        for (const Part& part : manifest_.parts) sum += part.n_rows;
        return sum;
    }

    void search_chunk() {
        const std::size_t radius = request_.radius;
        for (std::size_t q = 0; q < n_queries_; ++q) found_[q].reset(request_.radius, request_.limit);
        for (auto& scans : scans_) scans.clear();
        scanning_.assign(n_queries_, 0);
        // Without a limit there is no hope of stopping early.
        const bool grows = n_tables_ && radius >= n_tables_;
        const bool all = grows && request_.limit == kNoLimit && costs_.steps(0, radius) > costs_.scan();
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            if (manifest_.parts[p].segment->tables.empty() || all)
                for (std::uint32_t q = 0; q < n_queries_; ++q) scans_[p].push_back({q, 0});
            else
                first_steps(p);
        }
        if (grows && !all)
            for (std::size_t q = 0; q < n_queries_; ++q) later_steps(q);
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) scan(p);
    }

    // Steps that flip no bit, for all queries: one bucket of each table. What a group of queries will need next is
    // fetched while the others of the group are served.
    void first_steps(std::size_t p) {
        const Segment& segment = *manifest_.parts[p].segment;
        const std::size_t n_steps = std::min<std::size_t>(request_.radius + 1u, n_tables_);
        spans_.resize(kGroup * n_steps);
        for (std::size_t start = 0; start < n_queries_; start += kGroup) {
            const std::size_t stop = std::min(start + kGroup, n_queries_);
            for (std::size_t q = start; q < stop; ++q)
                for (std::size_t j = 0; j < n_steps; ++j) {
                    const std::uint32_t key = segment.tables[j].key.of(query(q));
                    spans_[(q - start) * n_steps + j].start = key;
                    __builtin_prefetch(segment.tables[j].offsets.data() + key);
                }
            for (std::size_t q = start; q < stop; ++q)
                for (std::size_t j = 0; j < n_steps; ++j) {
                    Span& span = spans_[(q - start) * n_steps + j];
                    span = bucket(segment.tables[j], span.start);
                    prefetch(segment.tables[j], span);
                }
            for (std::size_t q = start; q < stop; ++q) {
                const Span* spans = spans_.data() + (q - start) * n_steps;
                double rows = 0;
                for (std::size_t j = 0; j < n_steps; ++j) rows += spans[j].stop - spans[j].start;
                if (rows * kBucketRowCost > static_cast<double>(segment.n_rows)) {
                    scans_[p].push_back({static_cast<std::uint32_t>(q), 0});
                    scanning_[q] = 1;
                    continue;
                }
                for (std::size_t j = 0; j < n_steps; ++j) read_bucket(p, j, spans[j], q);
            }
        }
    }

    // Steps that flip bits, until the limit is reached or a scan is cheaper than what may be left.
    void later_steps(std::size_t q) {
        for (std::size_t t = n_tables_; t <= request_.radius && !found_[q].full_within(t - 1); ++t) {
            const std::size_t last = std::min<std::size_t>(request_.radius, found_[q].bound());
            // A cheap step may bring the bound down so far that few are left.
            const bool worth = last < t || costs_.steps(t, last) <= costs_.scan() ||
                               (request_.limit != kNoLimit && costs_.steps(t, t) <= costs_.scan() / 8);
            if (scanning_[q] || !worth) return scan_the_rest(q, t);
            for (std::size_t p = 0; p < manifest_.parts.size(); ++p)
                if (!manifest_.parts[p].segment->tables.empty()) step(p, t, q);
        }
    }

    void scan_the_rest(std::size_t q, std::size_t t) {
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            if (manifest_.parts[p].segment->tables.empty()) continue;
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

    void prefetch(const Table& table, Span span) const {
        // Of a long bucket, what follows is fetched by the hardware.
        constexpr std::size_t kLine = 64, kLines = 4;
        if (span.start == span.stop) return;
        const std::uint8_t* codes = table.codes.data() + std::size_t{span.start} * layout_.n_bytes;
        const std::size_t n_bytes = std::min(std::size_t{span.stop - span.start} * layout_.n_bytes, kLine * kLines);
        for (std::size_t at = 0; at < n_bytes; at += kLine) __builtin_prefetch(codes + at);
        __builtin_prefetch(codes + n_bytes - 1);
        if (!table.rows.empty()) __builtin_prefetch(table.rows.data() + span.start);
    }

    // Emits the hits of a bucket that step t reads and no earlier one.
    void read_bucket(std::size_t p, std::size_t t, Span span, std::size_t q) {
        const Part& part = manifest_.parts[p];
        const Table& table = part.segment->tables[t % n_tables_];
        ++cost_[q].buckets;
        each_within(table.codes.data(), span, q, [&](std::size_t place, const std::uint8_t* code, Distance distance) {
            if (t < n_tables_ ? seen_in_first_tables(*part.segment, t, q, code)
                              : first_step(*part.segment, q, code) != t)
                return;
            emit(p, table.rows.empty() ? place : table.rows[place], distance, q);
        });
    }

    // Calls found(place, code, distance) for what lies within the bound of the query.
    template <class Found>
    void each_within(const std::uint8_t* codes, Span span, std::size_t q, Found found) {
        const std::size_t n_bytes = layout_.n_bytes;
        cost_[q].candidates += span.stop - span.start;
        for (std::size_t start = span.start; start < span.stop; start += kBlockRows) {
            const Codes rows{codes + start * n_bytes, std::min<std::size_t>(kBlockRows, span.stop - start), n_bytes};
            const std::size_t count = kernel_.within(query(q), rows, found_[q].bound(), positions_, distances_);
            for (std::size_t i = 0; i < count; ++i)
                found(start + positions_[i], rows.row(positions_[i]), distances_[i]);
        }
    }

    bool seen_in_first_tables(const Segment& segment, std::size_t n, std::size_t q, const std::uint8_t* code) const {
        for (std::size_t j = 0; j < n; ++j)
            if (segment.tables[j].key.of(code) == segment.tables[j].key.of(query(q))) return true;
        return false;
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
        if (part.deleted && part.is_deleted(row)) return;
        const std::int64_t id = part.segment->ids[row];
        if (!request_.filter.allows(id)) return;
        found_[q].offer({id, static_cast<std::uint32_t>(row), static_cast<std::uint16_t>(p), distance});
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
        each_within(segment.codes.data(), span, q, [&](std::size_t row, const std::uint8_t* code, Distance distance) {
            if (scan.step == 0 || first_step(segment, q, code) >= scan.step) emit(p, row, distance, q);
        });
    }

    void probe_chunk() {
        for (std::size_t q = 0; q < n_queries_; ++q) {
            // A row may come out of several tables: only what is left after dropping repetitions can be limited.
            found_[q].reset(request_.radius, kNoLimit);
            probe(q);
        }
    }

    void probe(std::size_t q) {
        const float* logits = request_.logits + (first_query_ + q) * 8 * layout_.n_bytes;
        std::size_t left = request_.budget;
        order_.clear();
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
                std::vector<float> weights(key.length());
                for (std::size_t b = 0; b < weights.size(); ++b) weights[b] = std::abs(logits[key.start() + b]);
                order_.add_table(std::move(weights), (request_.radius - j) / n_tables_);
                tables_.emplace_back(p, j);
            }
        }
        while (left) {
            const auto next = order_.next();
            if (!next) break;
            const auto [p, j] = tables_[next->table];
            const Table& table = manifest_.parts[p].segment->tables[j];
            Span span = bucket(table, table.key.of(query(q)) ^ next->flipped);
            span.stop = static_cast<std::uint32_t>(std::min<std::size_t>(span.stop, span.start + left));
            // An empty bucket counts as a row: a budget bounds the time as well.
            left -= std::max<std::size_t>(1, span.stop - span.start);
            ++cost_[q].buckets;
            each_within(table.codes.data(), span, q, [&, p = p](std::size_t place, const std::uint8_t*, Distance distance) {
                emit(p, table.rows.empty() ? place : table.rows[place], distance, q);
            });
        }
    }

    void finish(std::size_t q, Hits& hits) {
        std::vector<Hit>& sorted = found_[q].sorted(sort_room_);
        if (request_.logits) {
            const auto same = [](const Hit& left, const Hit& right) { return left.id == right.id; };
            sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
            if (sorted.size() > request_.limit) sorted.resize(request_.limit);
        }
        if (request_.rerank) {
            rerank_into(q, sorted, hits);
        } else {
            std::int64_t* ids = hits.ids.extend(sorted.size());
            Distance* distances = hits.distances.extend(sorted.size());
            for (std::size_t i = 0; i < sorted.size(); ++i) ids[i] = sorted[i].id, distances[i] = sorted[i].distance;
        }
        hits.end_query(cost_[q]);
    }

    void rerank_into(std::size_t q, const std::vector<Hit>& found, Hits& hits) {
        const std::size_t width = layout_.embedding_bytes;
        embedding_distance_.set_query(request_.embeddings + (first_query_ + q) * embedding_distance_.kind().query_bytes());
        const auto embedding_of = [&](const Hit& hit) {
            return manifest_.parts[hit.part].segment->embeddings.data() + hit.row * width;
        };
        rerank(found, request_.rerank, embedding_distance_, embedding_of, ranked_);
        cost_[q].comparisons = static_cast<std::int64_t>(found.size());
        for (const RankedHit& ranked : ranked_) {
            hits.ids.push(ranked.hit.id);
            hits.distances.push(ranked.hit.distance);
            hits.embedding_distances.push(ranked.embedding_distance);
        }
    }

    const Layout& layout_;
    const Kernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const StepCosts& costs_;
    const std::size_t n_tables_;
    EmbeddingDistance embedding_distance_;

    // Of the queries at hand.
    std::size_t first_query_ = 0;
    std::size_t n_queries_ = 0;
    std::vector<FirstHits> found_;
    std::vector<Cost> cost_;
    std::vector<std::uint8_t> scanning_;    // whether some part with tables is to be scanned
    std::vector<std::vector<Scan>> scans_;  // of each part

    // Memory that is used again and again.
    std::vector<Span> spans_;
    SortRoom sort_room_;
    std::vector<RankedHit> ranked_;
    BucketOrder order_;
    std::vector<std::pair<std::size_t, std::size_t>> tables_;  // part and table of each table in the order
    std::uint32_t positions_[kBlockRows + kKernelSlack];
    Distance distances_[kBlockRows + kKernelSlack];
};

// Hits of every query, in at most `n_threads` threads.
inline Hits search(const MultiIndex& index, const Request& request, std::size_t n_threads) {
    const std::shared_ptr<const Manifest> manifest = index.manifest();
    const StepCosts costs(index.layout(), *manifest, request.radius);
    const std::size_t n_queries = request.queries.n_rows;
    n_threads = std::clamp<std::size_t>(n_queries, 1, n_threads);
    if (n_threads == 1) {
        Hits hits;
        std::make_unique<Searcher>(index, *manifest, request, costs)->run(0, n_queries, hits);
        return hits;
    }
    // More pieces than threads, so that all are busy to the end.
    const std::size_t n_pieces = std::min(n_queries, 8 * n_threads);
    std::vector<Hits> pieces(n_pieces);
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
        try {
            const auto searcher = std::make_unique<Searcher>(index, *manifest, request, costs);
            for (std::size_t piece; (piece = next++) < n_pieces;)
                searcher->run(piece * n_queries / n_pieces, (piece + 1) * n_queries / n_pieces, pieces[piece]);
        } catch (...) {
            const std::lock_guard lock(failure_mutex);
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
        work();
    }
    if (failure) std::rethrow_exception(failure);
    Hits hits;
    for (const Hits& piece : pieces) hits.append(piece);
    return hits;
}

}  // namespace hamtarget
