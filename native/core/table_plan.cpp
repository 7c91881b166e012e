#include "table_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "../kernels/tables.hpp"
#include "segment.hpp"

namespace hamtarget {

namespace {

constexpr std::size_t kRowNumberBytes = sizeof(RowNumber);
// Bytes that a row of up to 256 bits may take in all tables together. Long codes need more tables, and longer excerpts.
constexpr std::size_t kMostRowBytes = 256;
constexpr std::size_t kMostRowBytesOf = 32;
// Whole codes stand in all tables where a row takes no more than this: they need not be fetched.
constexpr std::size_t kMostWholeBytes = 304;
// Excerpts are so long that this share of unlike rows is not ruled out by them: so many standard deviations of their
// distance below its mean.
constexpr double kDeviations = 1.9;

// Return how many bytes of a code rule most rows out that are not within the radius; 0 if that is no less than a code.
std::size_t telling_bytes(std::size_t n_bytes, std::size_t radius) {
    for (std::size_t count = 4; count + kRowNumberBytes < n_bytes; count += 2) {
        const auto bytes = static_cast<double>(count);
        if (4 * bytes - kDeviations * std::sqrt(2 * bytes) > static_cast<double>(radius) + 0.5) return count;
    }
    return 0;
}

std::size_t row_bytes(const TablePlan& plan, std::size_t n_bytes) {
    const std::size_t other = plan.excerpt_bytes ? plan.excerpt_bytes : n_bytes;
    return n_bytes + kRowNumberBytes + (plan.n_tables - 1) * (other + kRowNumberBytes);
}

TablePlan plan_of(std::size_t n_bytes, std::size_t radius, std::size_t n_tables) {
    const TablePlan whole{n_tables, 0};
    const TablePlan excerpts{n_tables, telling_bytes(n_bytes, radius)};
    return excerpts.excerpt_bytes && row_bytes(whole, n_bytes) > kMostWholeBytes ? excerpts : whole;
}

double search_cost(const TablePlan& plan, std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
    const std::size_t n_bits = 8 * n_bytes, n_tables = plan.n_tables;
    const double table_bytes = static_cast<double>(n_rows * row_bytes(plan, n_bytes));
    const std::size_t n_longer = n_bits % n_tables, n_more_flips = radius % n_tables + 1;
    double sum = 0;
    // Tables of the same length and flips cost the same: there are at most three kinds, after the first table.
    for (std::size_t first = 0, last = 0; first < n_tables; first = last) {
        last = first == 0 ? 1 : first < n_longer ? n_longer : n_tables;
        if (first < n_more_flips) last = std::min(last, n_more_flips);
        const std::size_t width = n_bits / n_tables + (first < n_longer);
        const std::size_t length = std::min(width, directory_bits(n_rows));
        const std::size_t flips = (radius - first) / n_tables;
        double buckets = 0;
        for (std::size_t flipped = 0; flipped <= std::min(flips, length); ++flipped) buckets += choose(length, flipped);
        const double rows = static_cast<double>(n_rows) / std::exp2(static_cast<double>(length));
        const bool has_excerpts = plan.excerpt_bytes && first > 0;
        const std::size_t entry = kRowNumberBytes + (has_excerpts ? plan.excerpt_bytes : n_bytes);
        sum += static_cast<double>(last - first) * buckets * bucket_cost(rows, entry, table_bytes, has_excerpts);
    }
    return sum;
}

}  // namespace

std::size_t directory_bits(std::size_t n_rows) {
    const auto bits = static_cast<std::size_t>(std::bit_width(n_rows));
    return std::clamp<std::size_t>(bits, 4, kMaxKeyBits + 2) - 2;
}

double choose(std::size_t n, std::size_t k) {
    if (k > n) return 0;
    double result = 1;
    for (std::size_t i = 0; i < k; ++i) result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
    return result;
}

double bucket_cost(double rows, std::size_t entry_bytes, double table_bytes, bool has_excerpts) {
    using Costs = SearchCosts;
    const auto size = static_cast<double>(entry_bytes);
    const double far = table_bytes / (table_bytes + Costs::kCacheBytes);
    const double fetched = has_excerpts ? Costs::kFetchedShare * Costs::kFetchedCode : 0;
    return Costs::kBucket + far * (Costs::kFarBucket + Costs::kFarByte * std::min(rows * size, Costs::kNoticedBytes)) +
           rows * (Costs::kEntry + Costs::kEntryByte * size + fetched);
}

double scan_cost(std::size_t n_rows, std::size_t n_bytes) {
    return SearchCosts::kScannedByte * static_cast<double>(n_rows * n_bytes);
}

TablePlan planned_tables(std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
    const std::size_t longer = std::max<std::size_t>(1, n_bytes / kMostRowBytesOf);
    const std::size_t most_bytes = kMostRowBytes * longer * longer;
    // Where reading every row is cheaper at the radius, tables are for searches within smaller ones.
    for (std::size_t within = radius;; --within) {
        TablePlan best = plan_of(n_bytes, radius, 1);
        double lowest = search_cost(best, n_bytes, within, n_rows);
        for (std::size_t n_tables = 2; n_tables <= within + 1; ++n_tables) {
            const TablePlan plan = plan_of(n_bytes, radius, n_tables);
            if (row_bytes(plan, n_bytes) > (plan.excerpt_bytes ? most_bytes : std::max(most_bytes, kMostWholeBytes))) break;
            const double cost = search_cost(plan, n_bytes, within, n_rows);
            if (cost < lowest) lowest = cost, best = plan;
        }
        if (within == 0 || lowest < scan_cost(n_rows, n_bytes)) return best;
    }
}

}  // namespace hamtarget
