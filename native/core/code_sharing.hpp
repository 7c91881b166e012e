// Finding rows that have the same code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "../kernels/codes.hpp"
#include "array.hpp"
#include "shared_codes.hpp"

namespace hamtarget {

// Codes are stored once if at most this share of them is left then: with fewer equal codes, the lists of rows would take
// as much memory as the tables save.
inline constexpr double kMostDifferent = 0.75;
// And only if a search is expected to find at most so many rows: where it finds more, most of its time goes into the
// results, and reading fewer codes saves less than gathering rows from many lists costs.
inline constexpr double kMostRowsFound = 64;
// With more rows, places of lists might not fit into 32 bits.
inline constexpr std::size_t kMostSharingRows = 0x7FFFFFFF;

inline std::uint64_t hash_of_code(const std::uint8_t* code, std::size_t n_bytes) {
    std::uint64_t hash = 0;
    for (std::size_t at = 0; at < n_bytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, code + at, std::min<std::size_t>(8, n_bytes - at));
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash * 0x9E3779B97F4A7C15u;
}

inline std::size_t bits_apart(const std::uint8_t* left, const std::uint8_t* right, std::size_t n_bytes) {
    std::size_t sum = 0;
    for (std::size_t at = 0; at < n_bytes; at += 8) {
        std::uint64_t one = 0, other = 0;
        std::memcpy(&one, left + at, std::min<std::size_t>(8, n_bytes - at));
        std::memcpy(&other, right + at, std::min<std::size_t>(8, n_bytes - at));
        sum += static_cast<std::size_t>(std::popcount(one ^ other));
    }
    return sum;
}

// Return the share of numbers that differ from all before.
inline double share_of_different(std::vector<std::uint64_t>& numbers) {
    if (numbers.empty()) return 1;
    const auto count = static_cast<double>(numbers.size());
    std::sort(numbers.begin(), numbers.end());
    return static_cast<double>(std::unique(numbers.begin(), numbers.end()) - numbers.begin()) / count;
}

// Tell by a sample whether so many codes are equal that storing each once may be worth it.
//
// Codes that are repeated a few times are hardly ever met twice among some of the rows, so codes are sampled by their
// hash: equal ones come together. A code that half of all rows have may not be in that sample, but it is met again and
// again among any rows.
inline bool repeats(Codes codes) {
    constexpr std::size_t kSampled = 2048;
    const std::size_t step = std::max<std::size_t>(1, codes.n_rows / kSampled);
    const std::uint64_t most = ~std::uint64_t{0} / step;
    std::vector<std::uint64_t> by_hash, by_row;
    for (std::size_t row = 0; row < codes.n_rows; ++row) {
        const std::uint64_t hash = hash_of_code(codes.row(row), codes.n_bytes);
        if (hash <= most) by_hash.push_back(hash);
        if (row % step == 0) by_row.push_back(hash);
    }
    return std::min(share_of_different(by_hash), share_of_different(by_row)) <= kMostDifferent;
}

// Estimate by a sample how many rows with other codes lie within `radius` bits of a row.
inline double rows_near(Codes codes, std::size_t radius) {
    constexpr std::size_t kQueries = 32, kRows = 8192;
    const std::size_t query_step = std::max<std::size_t>(1, codes.n_rows / kQueries);
    const std::size_t row_step = std::max<std::size_t>(1, codes.n_rows / kRows);
    std::size_t n_queries = 0, n_rows = 0, n_within = 0;
    for (std::size_t row = row_step / 2; row < codes.n_rows; row += row_step) ++n_rows;
    for (std::size_t query = query_step / 3; query < codes.n_rows; query += query_step, ++n_queries)
        for (std::size_t row = row_step / 2; row < codes.n_rows; row += row_step) {
            const std::size_t away = bits_apart(codes.row(query), codes.row(row), codes.n_bytes);
            n_within += away > 0 && away <= radius;
        }
    const double share = static_cast<double>(n_within) / static_cast<double>(n_queries * n_rows);
    return share * static_cast<double>(codes.n_rows);
}

struct CodeSharing {
    std::vector<std::uint32_t> first_rows;  // of each code, ascending
    std::vector<RowNumber> numbers;         // of each code
    SharedCodes shared;
};

// Find out which rows share codes. `code_of(row)` returns the code of a row.
template <class CodeOf>
CodeSharing share_codes(std::size_t n_rows, std::size_t n_bytes, CodeOf code_of) {
    // Rows by some bits of the hash of their codes: about four at a time have to be sorted.
    const int n_bits = std::clamp(static_cast<int>(std::bit_width(n_rows)) - 2, 1, 28);
    const auto bucket_of = [&](std::size_t row) { return hash_of_code(code_of(row), n_bytes) >> (64 - n_bits); };
    std::vector<std::uint32_t> ends((std::size_t{1} << n_bits) + 1), by_hash(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) ++ends[bucket_of(row)];
    std::uint32_t sum = 0;
    for (std::uint32_t& end : ends) sum += std::exchange(end, sum);
    for (std::size_t row = 0; row < n_rows; ++row) by_hash[ends[bucket_of(row)]++] = static_cast<std::uint32_t>(row);
    // The first row with the code of each row.
    std::vector<std::uint32_t> first(n_rows);
    for (std::size_t b = 0, start = 0; b + 1 < ends.size(); start = ends[b++]) {
        const auto begin = by_hash.begin() + static_cast<std::ptrdiff_t>(start);
        const auto end = by_hash.begin() + static_cast<std::ptrdiff_t>(ends[b]);
        std::sort(begin, end, [&](std::uint32_t left, std::uint32_t right) {
            const int order = std::memcmp(code_of(left), code_of(right), n_bytes);
            return order ? order < 0 : left < right;
        });
        for (auto row = begin; row != end; ++row) {
            const bool is_equal = row != begin && std::memcmp(code_of(row[-1]), code_of(*row), n_bytes) == 0;
            first[*row] = is_equal ? first[row[-1]] : *row;
        }
    }
    CodeSharing result;
    std::vector<std::uint32_t>& counts = by_hash;  // rows of the code of each first row
    std::fill(counts.begin(), counts.end(), 0u);
    for (const std::uint32_t row : first) ++counts[row];
    const auto n_codes = n_rows - static_cast<std::size_t>(std::count(counts.begin(), counts.end(), 0u));
    Array<std::uint32_t> lists(n_codes + n_rows);
    std::vector<std::uint32_t> next(n_rows);  // place of the next row of each first row's code
    std::uint32_t at = 0;
    for (std::uint32_t row = 0; row < n_rows; ++row) {
        if (counts[row] == 0) continue;
        result.first_rows.push_back(row);
        result.numbers.push_back(row_number(at));
        lists[at] = counts[row];
        next[row] = at + 1;
        at += counts[row] + 1;
    }
    for (std::uint32_t row = 0; row < n_rows; ++row) lists[next[first[row]]++] = row;
    result.shared = {lists, n_rows};
    return result;
}

}  // namespace hamtarget
