// When parts are merged, and by whom.
//
// The first part is the large one. What came after it is young: a search of the large part alone is fast, so young
// rows are merged into it once they are one in 64, or fewer if the thread has had little to do. Among themselves young
// parts are merged so that each is several times larger than the next. A writer does small merges itself, and leaves
// the others to the thread.
#pragma once

#include <cstddef>

#include "manifest.hpp"

namespace hamtarget {

struct MergePolicy {
    std::size_t writer_rows = 16'384;  // most rows that a writer merges: it takes a few milliseconds
    std::size_t many_parts = 8;        // with so many young parts while the thread is busy, a writer merges more of them
    std::size_t young_share = 64;      // young rows are merged into the first part when they are one of so many
    std::size_t rested_share = 256;    // the same, if the thread has rested
    std::size_t rest = 4;              // it has, when such a merge ended so many times as long ago as it took
    std::size_t most_parts = 128;      // with more, writers wait for the thread
};

// How many times more a writer merges when there are many parts. One call in hundreds takes long then, but not a tenth of a
// second.
inline constexpr std::size_t kManyTimes = 8;

// A writer merges a part with those that follow unless it is this many times larger.
inline constexpr std::size_t kMergeRatio = 3;

// The same for the thread. Every part costs each search that looks into it a few look-ups, and merging young rows a few
// times more often costs nobody time.
inline constexpr std::size_t kThreadMergeRatio = 16;

// Some parts of a manifest, one after another.
struct PartRange {
    std::size_t first = 0, last = 0;

    bool empty() const { return first == last; }
};

// Return the parts that the thread should merge now: none of them is a delta.
inline PartRange due_merge(const Manifest& manifest, const MergePolicy& policy, bool is_rested) {
    const auto& parts = manifest.parts;
    std::size_t count = parts.size();
    if (count && parts[count - 1].delta) --count;
    if (count == 0) return {};
    // Without its deleted rows, a part would be less than half as large.
    const auto is_sparse = [&](std::size_t p) { return parts[p].n_deleted > parts[p].n_live(); };
    std::size_t young = 0;
    for (std::size_t p = 1; p < count; ++p) young += parts[p].n_live();
    const std::size_t share = is_rested ? policy.rested_share : policy.young_share;
    if (is_sparse(0) || (count > 1 && young * share >= parts[0].n_live())) return {0, count};
    for (std::size_t p = 1; p < count; ++p) {
        young -= parts[p].n_live();
        if (p + 1 < count && parts[p].n_live() < kThreadMergeRatio * young) return {p, count};
        if (is_sparse(p)) return {p, p + 1};
    }
    return {};
}

}  // namespace hamtarget
