// Hits: collecting the first ones, sorting them, and the results of many queries.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "array.hpp"
#include "limits.hpp"
#include "manifest.hpp"
#include "merge.hpp"

namespace hamtarget {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Nearer comes first; of rows at the same distance, the smaller id.
class HitOrder {
  public:
    explicit HitOrder(const Manifest& manifest)
        : manifest_(&manifest), by_rows_(manifest.parts.size() == 1 || manifest.is_verified()) {}

    Id id(Hit hit) const { return manifest_->parts[part_of(hit)].segment->ids[row_of(hit)]; }

    bool operator()(Hit left, Hit right) const {
        if (distance_of(left) != distance_of(right)) return left < right;
        if (by_rows_ && part_of(left) == part_of(right) && is_sorted(part_of(left))) return left < right;
        return id(left) < id(right);
    }

    std::size_t n_parts() const { return manifest_->parts.size(); }
    // Tell whether the order of rows is that of their ids, as in all parts but a delta.
    bool is_sorted(std::size_t part) const { return !manifest_->parts[part].delta; }

  private:
    const Manifest* manifest_;
    // Hits of one part are compared by row, which is faster, and hits of two parts by id. These must not contradict
    // each other, or sorting would read outside of the hits. So ids decide alone if they may not ascend.
    bool by_rows_;
};

// Sorts hits, in memory that is used again and again.
class HitSorter {
  public:
    // Return the hits in order, where they were or in memory of the sorter. None is farther than `farthest`.
    std::span<Hit> sort(Growing<Hit>& hits, Distance farthest, const HitOrder& order, Work& work) {
        const std::size_t count = hits.size();
        if (count < 2) return {hits.data(), count};
        if (!rows_order(hits, order, work)) {
            by_id(hits, order, work);
            return {hits.data(), count};
        }
        // Both have room for one more than there are: see by_distance.
        hits.reserve(count + 1);
        if (room_.size() < count + 1) room_.resize(count + 1);
        find_runs(hits, work);
        Hit* const by_row = merge_runs(hits.data(), room_.data(), ends_,
                                       [&](const Hit* left, const Hit* middle, const Hit* end, Hit* to) {
                                           merge(left, middle, end, to, work);
                                       });
        Hit* const to = by_row == hits.data() ? room_.data() : hits.data();
        by_distance(by_row, to, count, farthest, work);
        return {to, count};
    }

  private:
    struct HitWithId {
        Hit hit;
        Id id;

        friend bool operator<(const HitWithId& left, const HitWithId& right) {
            if (distance_of(left.hit) != distance_of(right.hit)) return left.hit < right.hit;
            return left.id < right.id;
        }
    };

    // Sort hits of several parts, or of a delta. Ids are read once: they lie far apart, and those of a mapped file might
    // change while they are compared, so that sorting would read outside of the hits.
    void by_id(Growing<Hit>& hits, const HitOrder& order, Work& work) {
        const std::size_t count = hits.size();
        with_ids_.clear();
        HitWithId* const keyed = with_ids_.extend(count);
        work.in_blocks(count, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) keyed[i] = {hits[i], order.id(hits[i])};
        });
        work.in_order(count, std::less<HitWithId>(), [&](const auto& less) { std::sort(keyed, keyed + count, less); });
        work.in_blocks(count, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) hits[i] = keyed[i].hit;
        });
    }

    // Tell whether the order of rows is that of ids, as in a single segment.
    static bool rows_order(const Growing<Hit>& hits, const HitOrder& order, Work& work) {
        if (!order.is_sorted(part_of(hits[0]))) return false;
        if (order.n_parts() == 1) return true;
        std::uint64_t differing = 0;
        work.in_blocks(hits.size(), [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) differing |= raw(hits[i]) ^ raw(hits[0]);
        });
        return part_of(Hit{differing}) == 0;
    }

    static std::uint64_t row_key(Hit hit) { return raw(hit) & 0xFFFFFFFFFFFF; }

    // Hits come in ascending runs of rows, one for each bucket that was read.
    void find_runs(const Growing<Hit>& hits, Work& work) {
        ends_.clear();
        work.in_blocks(hits.size(), [&](std::size_t first, std::size_t last) {
            for (std::size_t i = std::max<std::size_t>(first, 1); i < last; ++i)
                if (row_key(hits[i]) < row_key(hits[i - 1])) ends_.push_back(static_cast<std::uint32_t>(i));
        });
        ends_.push_back(static_cast<std::uint32_t>(hits.size()));
    }

    // Merge two runs; under limits, in pieces that take well below a millisecond.
    static void merge(const Hit* left, const Hit* middle, const Hit* end, Hit* to, Work& work) {
        const Hit* right = middle;
        if (work.is_limited()) {
            constexpr std::ptrdiff_t kPiece = 65536;
            const auto before = [](Hit one, Hit other) { return row_key(one) < row_key(other); };
            while (middle - left > kPiece || end - right > kPiece) {
                const Hit* left_stop = std::min(left + kPiece, middle);
                const Hit* right_stop = std::min(right + kPiece, end);
                // The piece ends with the smaller of both ends: what follows in the other run is larger.
                if (left_stop > left && right_stop > right) {
                    if (before(left_stop[-1], right_stop[-1]))
                        right_stop = std::lower_bound(right, right_stop, left_stop[-1], before);
                    else
                        left_stop = std::lower_bound(left, left_stop, right_stop[-1], before);
                }
                merge_two(left, left_stop, right, right_stop, to, row_key);
                to += (left_stop - left) + (right_stop - right);
                left = left_stop, right = right_stop;
                work.settle();
            }
            work.spend(static_cast<std::size_t>((middle - left) + (end - right)));
        }
        merge_two(left, middle, right, end, to, row_key);
    }

    // Sort by distance, which is a small number. If there are few distances, one pass for each is fastest: it needs
    // neither counts nor branches. If there are many, counting them gives every hit its place.
    void by_distance(const Hit* from, Hit* to, std::size_t count, Distance farthest, Work& work) {
        constexpr Distance kFew = 6;
        if (farthest <= kFew) {
            // A hit at another distance is overwritten by the next one. The last such hit lies past the end.
            std::size_t kept = 0;
            for (unsigned distance = 0; distance <= farthest; ++distance)
                work.in_blocks(count, [&](std::size_t first, std::size_t last) {
                    for (std::size_t i = first; i < last; ++i) {
                        to[kept] = from[i];
                        kept += distance_of(from[i]) == distance;
                    }
                });
            return;
        }
        starts_.assign(farthest + 2u, 0);
        work.in_blocks(count, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) ++starts_[distance_of(from[i]) + 1u];
        });
        for (std::size_t d = 1; d < starts_.size(); ++d) starts_[d] += starts_[d - 1];
        work.in_blocks(count, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) to[starts_[distance_of(from[i])]++] = from[i];
        });
    }

    std::vector<Hit> room_;
    Growing<HitWithId> with_ids_;
    std::vector<std::uint32_t> ends_;  // of runs
    std::vector<std::uint32_t> starts_;
};

// The first `limit` (at least 1) of the hits that are offered.
class FirstHits {
  public:
    // Forget everything. Distances will be at most `radius`.
    void reset(Distance radius, std::size_t limit) {
        bound_ = radius;
        limit_ = limit;
        hits_.clear();
        if (limit != kNoLimit) {
            counts_.assign(radius + 1u, 0);
            within_bound_ = 0;
        }
    }

    // Return the distance beyond which rows need not be offered any more. It shrinks as hits come in.
    Distance bound() const { return bound_; }

    // Tell whether rows farther than `distance` cannot be among the first any more.
    bool full_within(std::size_t distance) const {
        return limit_ != kNoLimit && bound_ <= distance && within_bound_ >= limit_;
    }

    // Return the hits. Without a limit, more may be written here directly.
    Growing<Hit>& all() { return hits_; }

    void offer(Hit hit, const HitOrder& order, Work& work) {
        if (limit_ == kNoLimit) {
            hits_.push(hit);
            return;
        }
        if (distance_of(hit) > bound_) return;
        hits_.push(hit);
        ++counts_[distance_of(hit)];
        ++within_bound_;
        while (within_bound_ - counts_[bound_] >= limit_) within_bound_ -= counts_[bound_--];
        // Hits that came before the bound shrank are dropped now and then, which takes constant time a hit.
        if (hits_.size() >= kSlack && hits_.size() / 4 >= limit_) cut(order, work);
    }

    // Return the hits in order. They are valid until anything is done with this or with the sorter.
    std::span<Hit> sorted(HitSorter& sorter, const HitOrder& order, Work& work) {
        if (limit_ != kNoLimit && hits_.size() > limit_) cut(order, work);
        return sorter.sort(hits_, bound_, order, work);
    }

  private:
    static constexpr std::size_t kSlack = 256;

    void cut(const HitOrder& order, Work& work) {
        work.in_order(hits_.size(), order, [&](const auto& less) {
            std::nth_element(hits_.data(), hits_.data() + limit_ - 1, hits_.data() + hits_.size(), less);
        });
        hits_.shrink(limit_);
        within_bound_ = limit_;
        std::fill(counts_.begin(), counts_.end(), 0);
        for (std::size_t i = 0; i < limit_; ++i) ++counts_[distance_of(hits_[i])];
    }

    Distance bound_ = 0;
    std::size_t limit_ = kNoLimit;
    std::size_t within_bound_ = 0;       // hits at most as far as the bound
    std::vector<std::uint32_t> counts_;  // of them at each distance
    Growing<Hit> hits_;
};

// What a query cost.
struct Cost {
    std::int64_t buckets = 0;      // looked up
    std::int64_t candidates = 0;   // rows read, one in several buckets counted in each
    std::int64_t comparisons = 0;  // embedding distances computed
};

// Hits of many queries: those of query q lie from offsets[q] to offsets[q + 1].
struct Hits {
    Growing<std::int64_t> offsets;
    Growing<Id> ids;
    Growing<Distance> distances;
    Growing<float> embedding_distances;  // empty unless hits were ranked by them
    Growing<std::int64_t> costs;         // three for each query

    Hits() { offsets.push(0); }

    // Count the queries whose hits are here.
    std::size_t n_queries() const { return offsets.size() - 1; }

    // Forget everything, and keep the memory.
    void clear() {
        offsets.shrink(1);
        ids.clear();
        distances.clear();
        embedding_distances.clear();
        costs.clear();
    }

    // Some queries of other hits: `first` to `last` - 1.
    struct Piece {
        const Hits* hits = nullptr;
        std::size_t first = 0, last = 0;

        std::size_t n_hits() const { return static_cast<std::size_t>(hits->offsets[last] - hits->offsets[first]); }
    };

    // Append the hits of the queries that follow, piece by piece: `n_threads` threads copy at the same time. Either all
    // queries are ranked by embedding, or none.
    void append(std::span<const Piece> pieces, std::size_t n_threads) {
        struct Start {
            std::size_t query, hit;
        };
        std::vector<Start> starts{{n_queries(), ids.size()}};
        for (const Piece& piece : pieces)
            starts.push_back({starts.back().query + piece.last - piece.first, starts.back().hit + piece.n_hits()});
        const Start before = starts.front(), after = starts.back();
        bool is_ranked = false;
        for (const Piece& piece : pieces) is_ranked |= piece.hits->embedding_distances.size() > 0;
        offsets.extend(after.query - before.query);
        costs.extend(3 * (after.query - before.query));
        ids.extend(after.hit - before.hit);
        distances.extend(after.hit - before.hit);
        if (is_ranked) embedding_distances.extend(after.hit - before.hit);
        std::atomic<std::size_t> next = 0;
        const auto copy = [&] {
            for (std::size_t i; (i = next++) < pieces.size();) {
                const Piece& piece = pieces[i];
                const Hits& from = *piece.hits;
                const Start& to = starts[i];
                const std::size_t hit = from.range(piece.first).start, n_hits = piece.n_hits();
                for (std::size_t q = piece.first; q < piece.last; ++q)
                    offsets[to.query + q - piece.first + 1] =
                        from.offsets[q + 1] + static_cast<std::int64_t>(to.hit) - static_cast<std::int64_t>(hit);
                from.costs.copy_to(costs.data() + 3 * to.query, 3 * piece.first, 3 * (piece.last - piece.first));
                from.ids.copy_to(ids.data() + to.hit, hit, n_hits);
                from.distances.copy_to(distances.data() + to.hit, hit, n_hits);
                if (is_ranked) from.embedding_distances.copy_to(embedding_distances.data() + to.hit, hit, n_hits);
            }
        };
        std::vector<std::jthread> threads;
        // Starting a thread takes as long as copying this.
        constexpr std::size_t kAlone = 100'000;
        if (after.hit - before.hit > kAlone)
            for (std::size_t i = 1; i < std::min(n_threads, pieces.size()); ++i) threads.emplace_back(copy);
        copy();
    }

    // Add hits of other rows, which are in order too: those of query i of `others` belong to query `queries[i]`.
    // Numbers of queries ascend. Hits are not ranked by embedding.
    void insert(const Hits& others, std::span<const std::uint32_t> queries) {
        for (std::size_t i = 0; i < queries.size(); ++i)
            for (std::size_t k = 0; k < 3; ++k) costs[3 * queries[i] + k] += others.costs[3 * i + k];
        // From the last query on, hits move towards the end; the earliest stay where they are. Hits of queries that get
        // none move together.
        std::size_t shift = others.ids.size(), stop_query = offsets.size() - 1, stop = ids.size();
        ids.extend(shift);
        distances.extend(shift);
        for (std::size_t i = queries.size(); i-- > 0 && shift > 0;) {
            const Range theirs = others.range(i), own = range(queries[i]);
            if (theirs.start == theirs.stop) continue;
            move({own.stop, stop}, shift);
            for (std::size_t q = queries[i]; q < stop_query; ++q) offsets[q + 1] += static_cast<std::int64_t>(shift);
            merge_backwards(own, others, theirs, own.stop + shift);
            shift -= theirs.stop - theirs.start;
            stop_query = queries[i], stop = own.start;
        }
    }

    // Keep at most `limit` hits of each query from `first_query` on. Hits are not ranked by embedding.
    void keep_first(std::size_t limit, std::size_t first_query) {
        std::size_t start = range(first_query).start, kept = start;
        for (std::size_t q = first_query; q < n_queries(); ++q) {
            const std::size_t stop = static_cast<std::size_t>(offsets[q + 1]), count = std::min(stop - start, limit);
            if (kept < start) {
                std::memmove(ids.data() + kept, ids.data() + start, count * sizeof ids[0]);
                std::memmove(distances.data() + kept, distances.data() + start, count * sizeof distances[0]);
            }
            kept += count;
            offsets[q + 1] = static_cast<std::int64_t>(kept);
            start = stop;
        }
        ids.shrink(kept);
        distances.shrink(kept);
    }

    // Make room for as many hits a query as there were so far: growing again and again would touch memory twice. Stop
    // at 320 MB, because the first queries may be unlike the others.
    void expect(std::size_t queries_left) {
        constexpr std::size_t kMost = std::size_t{1} << 25;
        const std::size_t queries_done = offsets.size() - 1;
        const std::size_t more = std::min(ids.size() * 9 / 8 / queries_done * queries_left, kMost);
        ids.reserve(ids.size() + more);
        distances.reserve(distances.size() + more);
    }

    void end_query(const Cost& cost) {
        offsets.push(static_cast<std::int64_t>(ids.size()));
        std::int64_t* numbers = costs.extend(3);
        numbers[0] = cost.buckets, numbers[1] = cost.candidates, numbers[2] = cost.comparisons;
    }

  private:
    struct Range {
        std::size_t start, stop;
    };

    Range range(std::size_t q) const {
        return {static_cast<std::size_t>(offsets[q]), static_cast<std::size_t>(offsets[q + 1])};
    }

    void move(Range range, std::size_t shift) {
        const std::size_t count = range.stop - range.start;
        if (count == 0 || shift == 0) return;
        std::memmove(ids.data() + range.start + shift, ids.data() + range.start, count * sizeof ids[0]);
        std::memmove(distances.data() + range.start + shift, distances.data() + range.start,
                     count * sizeof distances[0]);
    }

    // Merge hits of one query, so that they end at `to`.
    void merge_backwards(Range own, const Hits& others, Range theirs, std::size_t to) {
        while (theirs.stop > theirs.start) {
            const std::size_t last = theirs.stop - 1;
            const auto is_after = [&](std::size_t hit) {
                if (distances[hit] != others.distances[last]) return distances[hit] > others.distances[last];
                return ids[hit] > others.ids[last];
            };
            --to;
            if (own.stop > own.start && is_after(own.stop - 1)) {
                --own.stop;
                ids[to] = ids[own.stop], distances[to] = distances[own.stop];
            } else {
                --theirs.stop;
                ids[to] = others.ids[last], distances[to] = others.distances[last];
            }
        }
        move(own, to - own.stop);
    }
};

}  // namespace hamtarget
