// Reading cells of vectors, by the instructions of one kind of CPU.
//
// A sketch is a vector in 4-bit parts. Sketches lie in blocks of 16 rows; four parts of a row lie side by side, so that
// one lookup serves four parts of all 16 rows. A block begins with pairs of groups of four parts, 64 bytes each: byte
// 4 * row + part % 4 has the first group in its low bits and the second one in its high bits. If the number of groups is
// odd, 32 bytes follow: byte i has the lanes i (low bits) and i + 32 (high bits) of the last group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hamtarget {

inline constexpr std::size_t kSketchBlockRows = 16;
inline constexpr std::size_t kGroupParts = 4;
inline constexpr std::size_t kPartEntries = 16;
// Bytes of a group in a block of sketches, and in the tables of a query.
inline constexpr std::size_t kGroupBytes = kSketchBlockRows * kGroupParts / 2;
inline constexpr std::size_t kGroupTable = kGroupParts * kPartEntries;
// Weights above this do not fit 16-bit sums of two products.
inline constexpr int kMostWeight = 64;

// How much each value of each part adds to the score of a row.
struct SketchTables {
    const std::uint8_t* entries;  // [group][part of 4][value]
    const std::uint8_t* weights;  // [group][part of 4]: 1 to kMostWeight; entries count so many times
    std::size_t n_groups;
};

// Rows to be compared with a query. `rows` counts from `vectors` on, in steps of `n_bytes`.
struct RankedRows {
    const std::uint8_t* vectors;
    std::size_t n_bytes;
    const float* scales;  // of int8 rows
    const std::uint32_t* rows;
    std::size_t n_rows;
};

// Centres in 8 bits. The score of a centre is norms[c] - step * <elements, centre> - lowest * sums[c].
struct Int8Centres {
    const std::int8_t* elements;  // [block of 16][n_fours][16][4]
    const float* norms;           // infinity where there is no centre
    const float* sums;            // of the elements
    std::size_t n_blocks;
    std::size_t n_fours;  // dimensions / 4, rounded up
};

struct Int8Query {
    const std::uint8_t* elements;  // 4 * n_fours
    float step, lowest;
};

// Elements of stored vectors.
enum class RowType : std::uint8_t { kInt8, kUint8, kFloat16, kFloat32 };

struct NeighborKernel {
    // Sums of squared differences, or of products, of a query and rows.
    using Rank = void (*)(const float* query, std::size_t n_dims, const RankedRows&, float* sums);

    const char* name;

    // Write the rows of a cell whose sums are at most `bound`, ascending, and the sums; return their number. There is
    // room for `n_rows` and kSketchBlockRows more.
    std::size_t (*scan)(const std::uint8_t* sketches, std::size_t n_rows, const SketchTables&, std::int32_t bound,
                        std::int32_t* sums, std::uint32_t* rows);

    Rank squares[4];   // [row type]
    Rank products[4];  // [row type]

    // Scores of centres for queries, [query][n_blocks * 16].
    void (*centre_scores)(const Int8Centres&, const Int8Query* queries, std::size_t n_queries, float* scores);

    // Return a bound that at least `count` of 16 * n_blocks scores do not exceed, and not many more.
    float (*bound_of_scores)(const float* scores, std::size_t n_blocks, std::size_t count);
    // Write which of `count` scores are at most `bound`, ascending; return how many. There is room for 16 more.
    std::size_t (*at_most)(const float* scores, std::size_t count, float bound, std::uint32_t* places);
    // Return a number that at least `count` of the sums, of which there are as many, do not exceed; more than `count` only
    // if several are equal to it.
    std::int32_t (*bound_of_sums)(const std::int32_t* sums, std::size_t n_sums, std::size_t count);
    // Move the sums that are at most `bound`, and their places, to the front, and return how many there are.
    std::size_t (*keep_sums)(std::int32_t* sums, std::uint32_t* places, std::size_t n_sums, std::int32_t bound);
    float (*dot)(const float*, const float*, std::size_t);

    // For each row, the centre with the smallest norms[centre] - product, the first of several, and that number. Centres
    // are [block of 16][n_dims][16]; centres that fill up the last block have the norm infinity.
    void (*nearest)(const float* rows, std::size_t n_rows, std::size_t n_dims, const float* centres, const float* norms,
                    std::size_t n_blocks, std::int32_t* best, float* scores);

    // For each part, the entry nearest to the vector's. Entries are [part][dim][16], norms [part][16]: half of squares.
    void (*sketch)(const float* vector, std::size_t n_parts, std::size_t part_dims, const float* entries,
                   const float* norms, std::uint8_t* values);
    // products[part][entry] of a vector and the entries.
    void (*part_products)(const float* vector, std::size_t n_parts, std::size_t part_dims, const float* entries,
                          float* products);
    // Return how far the products of the part in which they differ most are apart.
    float (*widest)(const float* products, std::size_t n_parts);
    // Write scale * (largest product of the part - product), rounded; 255 stands for more, 0 for what is no number.
    void (*quantise)(const float* products, std::size_t n_parts, float scale, std::uint8_t* entries);
};

// Return the kernels that this CPU can run, fastest first. The last one runs everywhere.
std::span<const NeighborKernel* const> supported_neighbor_kernels();

}  // namespace hamtarget
