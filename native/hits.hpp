// Hits: collecting the first ones, sorting them, and results of many queries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "array.hpp"
#include "code.hpp"

namespace hamtarget {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// A row that was found. Nearer comes first; of rows at the same distance, the smaller id.
struct Hit {
    std::int64_t id;
    std::uint32_t row;
    std::uint16_t part;  // the part of the index that holds the row
    Distance distance;

    friend bool operator<(const Hit& left, const Hit& right) {
        return left.distance != right.distance ? left.distance < right.distance : left.id < right.id;
    }
};

namespace sorting {

// Sorts by id what consists of a few ascending runs, as the hits of a few buckets do: finds the runs, merges them.
inline void merge_runs(Hit* hits, std::size_t count, std::vector<Hit>& room, std::vector<std::size_t>& runs) {
    runs.assign(1, 0);
    for (std::size_t i = 1; i < count; ++i)
        if (hits[i].id < hits[i - 1].id) runs.push_back(i);
    runs.push_back(count);
    if (room.size() < count) room.resize(count);
    while (runs.size() > 2) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i + 1 < runs.size(); i += 2) {
            if (i + 2 < runs.size()) {
                // The first run moves out of the way; what is written then never overtakes the second.
                Hit* to = hits + runs[i];
                const Hit* right = hits + runs[i + 1];
                const Hit* const right_end = hits + runs[i + 2];
                const Hit* left = room.data();
                const Hit* const left_end = std::copy(to, hits + runs[i + 1], room.data());
                while (left < left_end && right < right_end) *to++ = right->id < left->id ? *right++ : *left++;
                std::copy(left, left_end, to);
            }
            runs[kept++] = runs[i];
        }
        runs[kept++] = count;
        runs.resize(kept);
    }
}

}  // namespace sorting

// Memory that sorting uses again and again.
struct SortRoom {
    std::vector<Hit> hits;
    std::vector<Hit> merged;
    std::vector<std::size_t> runs;
    std::vector<std::uint32_t> counts;
};

inline void sort_hits(std::vector<Hit>& hits, SortRoom& room) {
    constexpr std::size_t kFew = 24;
    if (hits.size() <= kFew) {
        for (std::size_t i = 1; i < hits.size(); ++i) {
            const Hit hit = hits[i];
            std::size_t at = i;
            for (; at > 0 && hit < hits[at - 1]; --at) hits[at] = hits[at - 1];
            hits[at] = hit;
        }
        return;
    }
    // Distances are small numbers: count them, and only ids are left to be sorted.
    Distance farthest = 0;
    for (const Hit& hit : hits) farthest = std::max(farthest, hit.distance);
    room.counts.assign(farthest + 2u, 0);
    for (const Hit& hit : hits) ++room.counts[hit.distance + 1u];
    for (std::size_t d = 1; d < room.counts.size(); ++d) room.counts[d] += room.counts[d - 1];
    if (room.hits.size() < hits.size()) room.hits.resize(hits.size());
    for (const Hit& hit : hits) room.hits[room.counts[hit.distance]++] = hit;
    // Each count has moved on to the end of its own distance.
    std::size_t begin = 0;
    for (std::size_t d = 0; d <= farthest; ++d) {
        const std::size_t end = room.counts[d];
        if (end - begin > 1) sorting::merge_runs(room.hits.data() + begin, end - begin, room.merged, room.runs);
        begin = end;
    }
    std::copy(room.hits.begin(), room.hits.begin() + static_cast<std::ptrdiff_t>(hits.size()), hits.begin());
}

// The first `limit` (at least 1) of the hits that are offered, in the order above.
class FirstHits {
  public:
    // Forgets everything. Distances will be at most `radius`.
    void reset(Distance radius, std::size_t limit) {
        bound_ = radius;
        limit_ = limit;
        hits_.clear();
        if (limit != kNoLimit) {
            counts_.assign(radius + 1u, 0);
            within_bound_ = 0;
        }
    }

    // Farther rows need not be offered any more. It shrinks as hits come in.
    Distance bound() const { return bound_; }

    // Whether rows farther than `distance` cannot be among the first any more.
    bool full_within(std::size_t distance) const {
        return limit_ != kNoLimit && bound_ <= distance && within_bound_ >= limit_;
    }

    void offer(const Hit& hit) {
        if (limit_ == kNoLimit) {
            hits_.push_back(hit);
            return;
        }
        if (hit.distance > bound_) return;
        hits_.push_back(hit);
        ++counts_[hit.distance];
        ++within_bound_;
        while (within_bound_ - counts_[bound_] >= limit_) within_bound_ -= counts_[bound_--];
        // Hits that came before the bound had shrunk are dropped now and then: constant time a hit.
        if (hits_.size() >= kSlack && hits_.size() / 4 >= limit_) cut();
    }

    // The hits in order.
    std::vector<Hit>& sorted(SortRoom& room) {
        if (limit_ != kNoLimit && hits_.size() > limit_) cut();
        sort_hits(hits_, room);
        return hits_;
    }

  private:
    static constexpr std::size_t kSlack = 256;

    void cut() {
        std::nth_element(hits_.begin(), hits_.begin() + static_cast<std::ptrdiff_t>(limit_ - 1), hits_.end());
        hits_.resize(limit_);
        within_bound_ = limit_;
        std::fill(counts_.begin(), counts_.end(), 0);
        for (const Hit& hit : hits_) ++counts_[hit.distance];
    }

    Distance bound_ = 0;
    std::size_t limit_ = kNoLimit;
    std::size_t within_bound_ = 0;       // hits at most as far as the bound
    std::vector<std::uint32_t> counts_;  // of them at each distance
    std::vector<Hit> hits_;
};

// What a query took.
struct Cost {
    std::int64_t buckets = 0;      // looked up
    std::int64_t candidates = 0;   // rows read, one in several buckets counted in each
    std::int64_t comparisons = 0;  // embedding distances computed
};

// Hits of many queries: those of query q lie from offsets[q] to offsets[q + 1].
struct Hits {
    Growing<std::int64_t> offsets;
    Growing<std::int64_t> ids;
    Growing<Distance> distances;
    Growing<float> embedding_distances;  // empty unless hits were ranked by them
    Growing<std::int64_t> costs;         // three for each query

    Hits() { offsets.push(0); }

    // Hits of the queries that follow.
    void append(const Hits& other) {
        const std::int64_t before = offsets[offsets.size() - 1];
        for (std::size_t q = 1; q < other.offsets.size(); ++q) offsets.push(before + other.offsets[q]);
        ids.append(other.ids);
        distances.append(other.distances);
        embedding_distances.append(other.embedding_distances);
        costs.append(other.costs);
    }

    void end_query(const Cost& cost) {
        offsets.push(static_cast<std::int64_t>(ids.size()));
        std::int64_t* numbers = costs.extend(3);
        numbers[0] = cost.buckets, numbers[1] = cost.candidates, numbers[2] = cost.comparisons;
    }
};

}  // namespace hamtarget
