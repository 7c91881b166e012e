// Work on codes, by the instructions of one kind of CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codes.hpp"
#include "tables.hpp"

namespace hamtarget {

// The units of one query's bits, summed up for every value of half a byte.
//
// The asymmetric distance of a query's logits to a code is the sum of |logit| over the bits in which the code differs
// from the query's. |logit| counts in whole units, 63 for the largest of a query (15 for codes of more than 1,024 bits). Then the sum of any four bits fits a
// byte, one table of 16 bytes for every half byte of a code serves all kernels, and all of them give the same results.
struct AsymmetricTables {
    alignas(64) std::uint8_t low[16 * kMaxCodeBytes];   // of the lower half of each byte
    alignas(64) std::uint8_t high[16 * kMaxCodeBytes];  // of the upper half
    std::size_t n_bytes = 0;
    const std::uint8_t* query = nullptr;

    HAMTARGET_INLINE Asymmetric operator()(const std::uint8_t* code) const {
        unsigned sum = 0;
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            const unsigned differing = code[byte] ^ query[byte];
            sum += low[16 * byte + (differing & 15)] + high[16 * byte + (differing >> 4)];
        }
        return static_cast<Asymmetric>(static_cast<std::uint16_t>(sum));
    }
};

// Rows that lie one after another: those of a bucket, or some of them.
struct RowRun {
    const std::uint8_t* codes;
    const RowNumber* rows;
    std::uint32_t count;
    std::uint32_t part;
};

// Which rows are wanted.
struct RowFilter {
    const std::uint8_t* query;
    std::size_t n_bytes;
    Distance radius;
    const AsymmetricTables* asymmetric;  // null where these distances are not wanted
};

// Where kernels put what they find in a block of rows.
struct KernelRoom {
    std::uint32_t positions[kBlockRows + kKernelSlack];
    Distance distances[kBlockRows + kKernelSlack];
};

// Elements past the last one that sorting and merging may overwrite.
inline constexpr std::size_t kSortSlack = 16;
// Elements past the last one that `write_rows` may overwrite. It may read 7 past the last.
inline constexpr std::size_t kWriteSlack = 32;

// One way to do the work. All of them give the same results.
struct CodeKernel {
    const char* name;

    // Compute the distance of `query` to each row.
    void (*distances)(const std::uint8_t* query, Codes rows, Distance* result);

    // Write positions and distances of the rows within `radius`, in the order of the rows, and return their number.
    // There are at most kBlockRows rows. Both results have room for all of them and kKernelSlack more.
    std::size_t (*within)(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                          Distance* distances);

    // Write the places that `count` entries of excerpts name whose bytes are within `radius` of the wanted ones, in their
    // order, and return their number. There is room for all of them and kKernelSlack more.
    std::size_t (*near_excerpts)(const std::uint8_t* wanted, std::size_t n_bytes, const std::uint8_t* entries,
                                 std::size_t count, Distance radius, std::uint32_t* places);

    // Do what `within` does for the rows at some places, of which there are at most kBlockRows: positions are those of the
    // places. A place past the last row stands for the last.
    std::size_t (*within_places)(const std::uint8_t* query, Codes rows, const std::uint32_t* places, std::size_t count,
                                 Distance radius, std::uint32_t* positions, Distance* distances);

    // Find the rows within the radius in the query's own buckets, each row once, in the first table whose substring it
    // shares with the query. The lists have room for all rows of the buckets and kSortSlack more. Row numbers come
    // out as they are in the tables.
    void (*read_buckets)(const OwnBuckets& buckets, KernelRoom& room, const RowListsView& lists);

    // Sort at most `most_sorted` rows in any order; 0 if merging is always faster.
    std::size_t most_sorted;
    void (*sort_rows)(RowNumber* rows, std::size_t count);

    // Merge two ascending runs, left to middle and middle to end, into `to`, which has room for kSortSlack more.
    void (*merge_rows)(const RowNumber* left, const RowNumber* middle, const RowNumber* end, RowNumber* to);

    // Write the ids of rows whose ids are consecutive from `base`, and the same distance for all of them.
    void (*write_rows)(const RowNumber* rows, std::size_t count, Id base, Distance distance, Id* ids,
                       Distance* distances);

    // Write the hits among the rows of the runs, and their asymmetric distances if wanted, in the order of the rows,
    // and return their number. Both results have room for all rows and kKernelSlack more. Row numbers come out as
    // they are in the tables.
    std::size_t (*filter_rows)(const RowFilter& filter, const RowRun* runs, std::size_t n_runs, KernelRoom& room,
                               Hit* hits, Asymmetric* distances);

    // Write the positions of the distances from `first` to `last` and return their number. There is room for all
    // positions and kKernelSlack more.
    std::size_t (*between)(const Asymmetric* distances, std::size_t count, Asymmetric first, Asymmetric last,
                           std::uint32_t* positions);
};

// Return the kernels that this CPU can run, fastest first. The last one runs everywhere.
std::span<const CodeKernel* const> supported_kernels();

// Return the fastest kernel that this CPU can run.
const CodeKernel& best_kernel();

// Return the kernel of that name. Throws std::invalid_argument if this CPU has none.
const CodeKernel& kernel_named(std::string_view name);

}  // namespace hamtarget
