// How many tables suit a number of rows, and what the tables hold: chosen by expected cost.
//
// With fewer tables than radius + 1, bits of bucket numbers are flipped: longer substrings have smaller buckets, but more
// of them are looked up. src/hamtarget/search/planning.py does the same arithmetic to explain it; a test compares both.
#pragma once

#include <cstddef>

namespace hamtarget {

// Costs of a search in nanoseconds, fitted by `python -m research.benchmarks.plan_fit` to the times that
// `python -m research.benchmarks.plan_speed` measures. Only their ratios matter for a plan.
struct SearchCosts {
    // Tables of so many bytes are half in the cache. The rest is far away.
    static constexpr double kCacheBytes = 293e6;
    // Look a bucket up; and more, where it is far away.
    static constexpr double kBucket = 74, kFarBucket = 12;
    // Read an entry of a bucket, and each of its bytes; and more for each byte where it is far away, until the CPU has
    // noticed that memory is read in order.
    static constexpr double kEntry = 0.042, kEntryByte = 0.034, kFarByte = 0.154, kNoticedBytes = 4376;
    // Fetch a whole code that an excerpt did not rule out, and the share of such codes that is expected.
    static constexpr double kFetchedCode = 22.5, kFetchedShare = 0.03;
    // Read a byte of a code in a scan.
    static constexpr double kScannedByte = 0.0125;
};

// What the tables of a segment are like.
struct TablePlan {
    std::size_t n_tables;
    std::size_t excerpt_bytes;  // of a code, in all tables but the first; 0: whole codes in all of them

    friend bool operator==(const TablePlan&, const TablePlan&) = default;
};

// Return the bits of a bucket number for so many rows: about four rows a bucket fill half a cache line.
std::size_t directory_bits(std::size_t n_rows);

// Return the plan that searches `n_rows` rows within `radius` fastest, in a bounded number of bytes a row.
TablePlan planned_tables(std::size_t n_bytes, std::size_t radius, std::size_t n_rows);

// Return n over k.
double choose(std::size_t n, std::size_t k);

// Return the nanoseconds that a bucket of `rows` rows takes, on average, in tables of `table_bytes` bytes in all.
double bucket_cost(double rows, std::size_t entry_bytes, double table_bytes, bool has_excerpts);
// Return the nanoseconds that reading all rows takes.
double scan_cost(std::size_t n_rows, std::size_t n_bytes);

}  // namespace hamtarget
