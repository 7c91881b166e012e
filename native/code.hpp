// Packed codes and their Hamming distances, by instructions that every CPU has; kernel.hpp chooses faster ones.
//
// A code is a row of n_bytes bytes, 1 to 128 (8 to 1,024 bits); rows follow one another without gaps.
// Callers check their input: nothing here looks at a length or a pointer twice.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hamtarget {

using Distance = std::uint16_t;

inline constexpr std::size_t kMaxCodeBytes = 128;

// Packed codes that somebody else owns.
struct Codes {
    const std::uint8_t* bytes;
    std::size_t n_rows;
    std::size_t n_bytes;

    const std::uint8_t* row(std::size_t index) const { return bytes + index * n_bytes; }
    Codes slice(std::size_t start, std::size_t count) const { return {row(start), count, n_bytes}; }
};

// A block of rows stays in the second-level cache while every query of a batch reads it. (One that fits the first
// level was slower: it is read so fast that starting and ending took a tenth of the time.)
inline constexpr std::size_t kBlockBytes = 64 * 1024;
inline constexpr std::size_t kBlockRows = 8192;
// Kernels store whole registers, whose end may lie past the last result.
inline constexpr std::size_t kKernelSlack = 16;

// What is always inlined is compiled once for each kernel, with the instructions of that kernel.
#define HAMTARGET_INLINE [[gnu::always_inline]] inline

// How much of a long piece of memory is fetched before it is read; while it is read, the rest follows.
inline constexpr std::size_t kPrefetchedBytes = 768;

// Has memory fetched that will be read soon: its beginning.
// Inlined always: GCC 12 takes a function that only prefetches for one without effect, and drops the call.
HAMTARGET_INLINE void prefetch_bytes(const void* from, std::size_t n_bytes) {
    constexpr std::size_t kLine = 64;
    // Not to be kept once it was read: the next queries read something else. Worth 7% of a light search.
    constexpr int kOnce = 0;
    const char* begin = static_cast<const char*>(from);
    const char* end = begin + std::min(n_bytes, kPrefetchedBytes);
    for (const char* at = begin; at < end; at += kLine) __builtin_prefetch(at, 0, kOnce);
    __builtin_prefetch(end - 1, 0, kOnce);
}

namespace kernels {

template <class Word>
HAMTARGET_INLINE unsigned word_distance(const std::uint8_t* left, const std::uint8_t* right) {
    Word a, b;
    std::memcpy(&a, left, sizeof a);
    std::memcpy(&b, right, sizeof b);
    return static_cast<unsigned>(std::popcount(static_cast<Word>(a ^ b)));
}

HAMTARGET_INLINE unsigned code_distance(const std::uint8_t* left, const std::uint8_t* right, std::size_t n_bytes) {
    unsigned distance = 0;
    std::size_t at = 0;
    for (; at + 8 <= n_bytes; at += 8) distance += word_distance<std::uint64_t>(left + at, right + at);
    if (n_bytes & 4) distance += word_distance<std::uint32_t>(left + at, right + at), at += 4;
    if (n_bytes & 2) distance += word_distance<std::uint16_t>(left + at, right + at), at += 2;
    if (n_bytes & 1) distance += word_distance<std::uint8_t>(left + at, right + at);
    return distance;
}

HAMTARGET_INLINE void word_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    const auto each_row = [&](std::size_t n_bytes) __attribute__((always_inline)) {
        for (std::size_t i = 0; i < rows.n_rows; ++i)
            result[i] = static_cast<Distance>(code_distance(query, rows.bytes + i * n_bytes, n_bytes));
    };
    // A length that the compiler knows needs no loop over words.
    switch (rows.n_bytes) {
        case 4: return each_row(4);
        case 8: return each_row(8);
        case 16: return each_row(16);
        case 32: return each_row(32);
        default: return each_row(rows.n_bytes);
    }
}

// `within` of the kernels that have nothing better: all distances, then those that are small enough.
template <void (*distances_to)(const std::uint8_t*, Codes, Distance*)>
std::size_t within_by_distances(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                                Distance* distances) {
    // Hits are rare: one test passes over a group of rows that has none.
    constexpr std::size_t kGroup = 16;
    Distance all[kBlockRows];
    distances_to(query, rows, all);
    std::size_t count = 0;
    for (std::size_t start = 0; start < rows.n_rows; start += kGroup) {
        const std::size_t stop = std::min(start + kGroup, rows.n_rows);
        if (stop - start == kGroup) {
            std::uint16_t any = 0;
            for (std::size_t i = start; i < start + kGroup; ++i) any |= static_cast<std::uint16_t>(all[i] <= radius);
            if (!any) continue;
        }
        for (std::size_t i = start; i < stop; ++i) {
            positions[count] = static_cast<std::uint32_t>(i);
            distances[count] = all[i];
            count += all[i] <= radius;
        }
    }
    return count;
}

inline void portable_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    word_distances(query, rows, result);
}

}  // namespace kernels

}  // namespace hamtarget
