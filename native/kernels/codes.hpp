// Packed codes, and the numbers that stand for rows, buckets, distances and hits.
//
// A code is a row of n_bytes bytes, 1 to 512 (8 to 4,096 bits). Rows follow one another without gaps. Callers check
// their input: nothing here looks at a length or a pointer twice.
//
// Numbers that must not be mixed up are types of their own. They are enumerations without names, so they cost nothing:
// RowNumber{7} makes one, raw(row) gives its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "inline.hpp"

namespace hamtarget {

// What a caller calls a row. Ids go to numpy and to files as plain numbers.
using Id = std::int64_t;

// Hamming distance, at most 4,096.
using Distance = std::uint16_t;

// Asymmetric distance in whole units, at most 63 x 1,024 or 15 x 4,096 (AsymmetricTables).
enum class Asymmetric : std::uint16_t {};

// Row of a segment. Rows are numbered in the order of their ids.
enum class RowNumber : std::uint32_t {};

// Bucket of a table.
enum class BucketNumber : std::uint32_t {};

// A row that was found, as one number: distance (16 bits), part of the index (16), row of the part (32). Hits of one
// segment are in order when these numbers are.
enum class Hit : std::uint64_t {};

template <class Number>
    requires std::is_enum_v<Number>
HAMTARGET_INLINE constexpr auto raw(Number number) {
    return static_cast<std::underlying_type_t<Number>>(number);
}

HAMTARGET_INLINE constexpr RowNumber row_number(std::size_t number) {
    return static_cast<RowNumber>(static_cast<std::uint32_t>(number));
}

HAMTARGET_INLINE constexpr Hit hit_of(Distance distance, std::size_t part, RowNumber row) {
    return Hit{std::uint64_t{distance} << 48 | std::uint64_t{part} << 32 | raw(row)};
}
HAMTARGET_INLINE constexpr Distance distance_of(Hit hit) { return static_cast<Distance>(raw(hit) >> 48); }
HAMTARGET_INLINE constexpr std::size_t part_of(Hit hit) { return raw(hit) >> 32 & 0xFFFF; }
HAMTARGET_INLINE constexpr RowNumber row_of(Hit hit) { return row_number(raw(hit) & 0xFFFFFFFF); }

inline constexpr std::size_t kMaxCodeBytes = 512;

// Packed codes that somebody else owns.
struct Codes {
    const std::uint8_t* bytes;
    std::size_t n_rows;
    std::size_t n_bytes;

    HAMTARGET_INLINE const std::uint8_t* row(std::size_t index) const { return bytes + index * n_bytes; }
    HAMTARGET_INLINE Codes slice(std::size_t start, std::size_t count) const { return {row(start), count, n_bytes}; }
};

// A block of rows stays in the second-level cache while every query of a batch reads it. (A block that fits the first
// level was slower: it is read so fast that starting and ending took a tenth of the time.)
inline constexpr std::size_t kBlockBytes = 64 * 1024;
inline constexpr std::size_t kBlockRows = 8192;
// Kernels store whole registers, whose end may lie past the last result.
inline constexpr std::size_t kKernelSlack = 16;

}  // namespace hamtarget
