// How many tables suit a number of rows, and what the tables hold: chosen by expected cost.
//
// With fewer tables than radius + 1, bits of bucket numbers are flipped: longer substrings have smaller buckets, but more
// of them are looked up. hamtarget.search.tables puts these figures into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hamtarget {

// Costs of a search in nanoseconds, fitted by `python -m research.benchmarks.plan_fit` to the times that
// `python -m research.benchmarks.plan_speed` measures. Only their ratios matter for a plan.
struct SearchCosts {
    // Tables of so many bytes are half in the cache. The rest is far away.
    double cache_bytes = 293e6;
    // Look a bucket up; and more, where it is far away.
    double bucket = 74, far_bucket = 12;
    // Read an entry of a bucket, and each of its bytes; and more for each byte where it is far away, until the CPU has
    // noticed that memory is read in order.
    double entry = 0.042, entry_byte = 0.034, far_byte = 0.154, noticed_bytes = 4376;
    // Fetch a whole code that an excerpt did not rule out, and the share of such codes that is expected.
    double fetched_code = 22.5, fetched_share = 0.03;
    // Read a byte of a code in a scan.
    double scanned_byte = 0.0125;
};

inline constexpr SearchCosts kSearchCosts;

// What the tables of a segment are like.
struct TablePlan {
    std::size_t n_tables;
    std::size_t excerpt_bytes;  // of a code, in all tables but the first; 0: whole codes in all of them

    friend bool operator==(const TablePlan&, const TablePlan&) = default;
};

// A plan, and the cost of a search if codes are spread evenly.
struct TableChoice {
    TablePlan plan;
    std::vector<std::size_t> lengths;  // bits of each substring
    std::vector<std::size_t> flips;    // bits of each substring in which buckets are read that differ from the query's own
    std::uint64_t buckets;             // that a query looks up
    double candidates;                 // rows that a query reads, a row in several buckets counted in each
    std::size_t row_bytes;             // of a row in all tables, without its id
    double memory;                     // most bytes of a compact index, ids included
    double nanoseconds;
};

// Return the bits of a bucket number for so many rows: about four rows a bucket fill half a cache line.
std::size_t directory_bits(std::size_t n_rows);

// Return the plan that searches `n_rows` rows within `radius` fastest, in a bounded number of bytes a row.
TablePlan planned_tables(std::size_t n_bytes, std::size_t radius, std::size_t n_rows);

// Return the costs of each number of tables that `planned_tables` may choose, ascending.
std::vector<TableChoice> table_choices(std::size_t n_bytes, std::size_t radius, std::size_t n_rows);
// Return the costs of so many tables; where they are not planned, whole codes stand in all of them.
TableChoice table_choice(std::size_t n_bytes, std::size_t radius, std::size_t n_rows, std::size_t n_tables,
                         bool is_planned, const SearchCosts& costs = kSearchCosts);

// Return n over k.
double choose(std::size_t n, std::size_t k);

// Return the nanoseconds that a bucket of `rows` rows takes, on average, in tables of `table_bytes` bytes in all.
double bucket_cost(double rows, std::size_t entry_bytes, double table_bytes, bool has_excerpts,
                   const SearchCosts& costs = kSearchCosts);
// Return the nanoseconds that reading all rows takes.
double scan_cost(std::size_t n_rows, std::size_t n_bytes);

}  // namespace hamtarget
