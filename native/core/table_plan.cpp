#include "table_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

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

// Return the plans of 1 to radius + 1 tables, as far as a row takes few enough bytes in them.
std::vector<TablePlan> possible_plans(std::size_t n_bytes, std::size_t radius) {
    const std::size_t longer = std::max<std::size_t>(1, n_bytes / kMostRowBytesOf);
    const std::size_t most_bytes = kMostRowBytes * longer * longer;
    std::vector<TablePlan> plans{plan_of(n_bytes, radius, 1)};
    for (std::size_t n_tables = 2; n_tables <= radius + 1; ++n_tables) {
        const TablePlan plan = plan_of(n_bytes, radius, n_tables);
        if (row_bytes(plan, n_bytes) > (plan.excerpt_bytes ? most_bytes : std::max(most_bytes, kMostWholeBytes))) break;
        plans.push_back(plan);
    }
    return plans;
}

// What a search does and takes, on average.
struct Expected {
    double buckets = 0, candidates = 0, nanoseconds = 0;
};

Expected expected_search(const TablePlan& plan, std::size_t n_bytes, std::size_t radius, std::size_t n_rows,
                         const SearchCosts& costs = kSearchCosts) {
    const std::size_t n_bits = 8 * n_bytes, n_tables = plan.n_tables;
    const double table_bytes = static_cast<double>(n_rows) * static_cast<double>(row_bytes(plan, n_bytes));
    const std::size_t n_longer = n_bits % n_tables, n_more_flips = radius % n_tables + 1;
    Expected sum;
    // Tables of the same length and flips cost the same: there are at most three kinds, after the first table.
    for (std::size_t first = 0, last = 0; first < n_tables; first = last) {
        last = first == 0 ? 1 : first < n_longer ? n_longer : n_tables;
        if (first < n_more_flips) last = std::min(last, n_more_flips);
        const std::size_t width = n_bits / n_tables + (first < n_longer);
        const std::size_t length = std::min(width, directory_bits(n_rows));
        const std::size_t flips = (radius - first) / n_tables;
        double buckets = 0;
        for (std::size_t flipped = 0; flipped <= std::min(flips, length); ++flipped) buckets += choose(length, flipped);
        buckets *= static_cast<double>(last - first);
        const double rows = static_cast<double>(n_rows) / std::exp2(static_cast<double>(length));
        const bool has_excerpts = plan.excerpt_bytes && first > 0;
        const std::size_t entry = kRowNumberBytes + (has_excerpts ? plan.excerpt_bytes : n_bytes);
        sum.buckets += buckets;
        sum.candidates += buckets * rows;
        sum.nanoseconds += buckets * bucket_cost(rows, entry, table_bytes, has_excerpts, costs);
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

double bucket_cost(double rows, std::size_t entry_bytes, double table_bytes, bool has_excerpts,
                   const SearchCosts& costs) {
    const auto size = static_cast<double>(entry_bytes);
    const double far = table_bytes / (table_bytes + costs.cache_bytes);
    const double fetched = has_excerpts ? costs.fetched_share * costs.fetched_code : 0;
    return costs.bucket + far * (costs.far_bucket + costs.far_byte * std::min(rows * size, costs.noticed_bytes)) +
           rows * (costs.entry + costs.entry_byte * size + fetched);
}

double scan_cost(std::size_t n_rows, std::size_t n_bytes) {
    return kSearchCosts.scanned_byte * static_cast<double>(n_rows) * static_cast<double>(n_bytes);
}

TablePlan planned_tables(std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
    const auto plans = possible_plans(n_bytes, radius);
    // Where reading every row is cheaper at the radius, tables are for searches within smaller ones.
    for (std::size_t within = radius;; --within) {
        TablePlan best = plans.front();
        double lowest = expected_search(best, n_bytes, within, n_rows).nanoseconds;
        for (std::size_t i = 1; i < std::min(plans.size(), within + 1); ++i) {
            const double cost = expected_search(plans[i], n_bytes, within, n_rows).nanoseconds;
            if (cost < lowest) lowest = cost, best = plans[i];
        }
        if (within == 0 || lowest < scan_cost(n_rows, n_bytes)) return best;
    }
}

std::vector<TableChoice> table_choices(std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
    std::vector<TableChoice> choices;
    for (const TablePlan& plan : possible_plans(n_bytes, radius))
        choices.push_back(table_choice(n_bytes, radius, n_rows, plan.n_tables, true));
    return choices;
}

TableChoice table_choice(std::size_t n_bytes, std::size_t radius, std::size_t n_rows, std::size_t n_tables,
                         bool is_planned, const SearchCosts& costs) {
    const TablePlan plan = is_planned ? plan_of(n_bytes, radius, n_tables) : TablePlan{n_tables, 0};
    const Expected expected = expected_search(plan, n_bytes, radius, n_rows, costs);
    std::vector<std::size_t> lengths, flips;
    std::size_t directories = 0;
    for (std::size_t table = 0; table < n_tables; ++table) {
        const std::size_t start = substring_start(8 * n_bytes, n_tables, table);
        lengths.push_back(substring_start(8 * n_bytes, n_tables, table + 1) - start);
        flips.push_back((radius - table) / n_tables);
        directories += (std::size_t{1} << std::min(lengths.back(), directory_bits(n_rows))) + 1;
    }
    const std::size_t bytes = row_bytes(plan, n_bytes);
    const double memory = static_cast<double>(n_rows) * static_cast<double>(sizeof(Id) + bytes) +
                          static_cast<double>(kRowNumberBytes * directories);
    return {plan,
            std::move(lengths),
            std::move(flips),
            static_cast<std::uint64_t>(std::llround(expected.buckets)),
            expected.candidates,
            bytes,
            memory,
            expected.nanoseconds};
}

}  // namespace hamtarget
