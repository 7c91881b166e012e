// Reading cells in plain C++ and vectors of the compiler, compiled once for each instruction set. inline.hpp says why
// this namespace has no name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "embedding_loops.hpp"
#include "inline.hpp"
#include "neighbor_kernel.hpp"

namespace hamtarget {

namespace {

// These functions are inlined, so that how they pass vectors does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

using Floats16 = float __attribute__((vector_size(64)));
using Ints16 = std::int32_t __attribute__((vector_size(64)));

HAMTARGET_INLINE Floats16 load16(const float* from) {
    Floats16 result;
    std::memcpy(&result, from, sizeof result);
    return result;
}

HAMTARGET_INLINE void store16(float* to, const Floats16& values) { std::memcpy(to, &values, sizeof values); }

HAMTARGET_INLINE Floats16 smaller16(const Floats16& left, const Floats16& right) { return right < left ? right : left; }
HAMTARGET_INLINE Floats16 larger16(const Floats16& left, const Floats16& right) { return left < right ? right : left; }

// Put the largest of 16 numbers into all lanes.
HAMTARGET_INLINE Floats16 largest16(const Floats16& numbers) {
    Floats16 v = numbers;
    v = larger16(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = larger16(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = larger16(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    return larger16(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
}

// The value of a part, by the layout that neighbor_kernel.hpp describes.
HAMTARGET_INLINE std::uint8_t value_at(const std::uint8_t* block, std::size_t n_groups, std::size_t row,
                                       std::size_t part) {
    const std::size_t group = part / kGroupParts, lane = row * kGroupParts + part % kGroupParts;
    const std::uint8_t* pair = block + group / 2 * 2 * kGroupBytes;
    const bool is_single = group % 2 == 0 && group + 1 == n_groups;
    const std::uint8_t byte = pair[is_single ? lane % kGroupBytes : lane];
    const bool is_high = is_single ? lane >= kGroupBytes : group % 2 == 1;
    return is_high ? byte >> 4 : byte & 15;
}

[[maybe_unused]] std::size_t scan_by_loops(const std::uint8_t* sketches, std::size_t n_rows, const SketchTables& tables,
                                           std::int32_t bound, std::int32_t* sums, std::uint32_t* rows) {
    std::size_t count = 0;
    for (std::size_t first = 0; first < n_rows; first += kSketchBlockRows) {
        const std::uint8_t* block = sketches + first / kSketchBlockRows * tables.n_groups * kGroupBytes;
        for (std::size_t row = 0; row < smaller(kSketchBlockRows, n_rows - first); ++row) {
            std::int32_t sum = 0;
            for (std::size_t part = 0; part < tables.n_groups * kGroupParts; ++part)
                sum += tables.weights[part] *
                       tables.entries[part * kPartEntries + value_at(block, tables.n_groups, row, part)];
            if (sum > bound) continue;
            sums[count] = sum;
            rows[count++] = static_cast<std::uint32_t>(first + row);
        }
    }
    return count;
}

// Elements of rows as floats.
struct Int8Row {
    static constexpr bool kIsScaled = true;
    const std::int8_t* numbers;
    HAMTARGET_INLINE explicit Int8Row(const std::uint8_t* bytes)
        : numbers(reinterpret_cast<const std::int8_t*>(bytes)) {}
    HAMTARGET_INLINE float operator[](std::size_t i) const { return static_cast<float>(numbers[i]); }
};

struct Uint8Row {
    static constexpr bool kIsScaled = false;
    const std::uint8_t* numbers;
    HAMTARGET_INLINE explicit Uint8Row(const std::uint8_t* bytes) : numbers(bytes) {}
    HAMTARGET_INLINE float operator[](std::size_t i) const { return static_cast<float>(numbers[i]); }
};

struct Float16Row {
    static constexpr bool kIsScaled = false;
    const std::uint8_t* bytes;
    HAMTARGET_INLINE explicit Float16Row(const std::uint8_t* bytes_) : bytes(bytes_) {}
    HAMTARGET_INLINE float operator[](std::size_t i) const {
        std::uint16_t half;
        std::memcpy(&half, bytes + 2 * i, 2);
#if defined(__F16C__)
        return _cvtsh_ss(half);
#else
        return widened(half);
#endif
    }
};

struct Float32Row {
    static constexpr bool kIsScaled = false;
    const std::uint8_t* bytes;
    HAMTARGET_INLINE explicit Float32Row(const std::uint8_t* bytes_) : bytes(bytes_) {}
    HAMTARGET_INLINE float operator[](std::size_t i) const {
        float value;
        std::memcpy(&value, bytes + 4 * i, 4);
        return value;
    }
};

// Rows that are fetched before one is compared.
constexpr std::size_t kRowsAhead = 12;

HAMTARGET_INLINE void fetch_row(const RankedRows& ranked, std::size_t i) {
    if (i >= ranked.n_rows) return;
    const std::uint8_t* row = ranked.vectors + std::size_t{ranked.rows[i]} * ranked.n_bytes;
    for (std::size_t at = 0; at < smaller<std::size_t>(ranked.n_bytes, 1024); at += 64) __builtin_prefetch(row + at);
    __builtin_prefetch(row + ranked.n_bytes - 1);
}

template <class Row>
void squares_by_loops(const float* query, std::size_t n_dims, const RankedRows& ranked, float* sums) {
    for (std::size_t i = 0; i < kRowsAhead; ++i) fetch_row(ranked, i);
    for (std::size_t i = 0; i < ranked.n_rows; ++i) {
        fetch_row(ranked, i + kRowsAhead);
        const Row row(ranked.vectors + std::size_t{ranked.rows[i]} * ranked.n_bytes);
        const float scale = Row::kIsScaled ? ranked.scales[ranked.rows[i]] : 1;
        sums[i] = float_sum(n_dims, [=](std::size_t d) __attribute__((always_inline)) {
            const float difference = query[d] - scale * row[d];
            return difference * difference;
        });
    }
}

template <class Row>
void products_by_loops(const float* query, std::size_t n_dims, const RankedRows& ranked, float* sums) {
    for (std::size_t i = 0; i < kRowsAhead; ++i) fetch_row(ranked, i);
    for (std::size_t i = 0; i < ranked.n_rows; ++i) {
        fetch_row(ranked, i + kRowsAhead);
        const Row row(ranked.vectors + std::size_t{ranked.rows[i]} * ranked.n_bytes);
        const float scale = Row::kIsScaled ? ranked.scales[ranked.rows[i]] : 1;
        sums[i] = scale * float_sum(n_dims, [=](std::size_t d) __attribute__((always_inline)) { return query[d] * row[d]; });
    }
}

[[maybe_unused]] void centre_scores_by_loops(const Int8Centres& centres, const Int8Query* queries,
                                             std::size_t n_queries, float* scores) {
    for (std::size_t block = 0; block < centres.n_blocks; ++block)
        for (std::size_t q = 0; q < n_queries; ++q) {
            const std::int8_t* four = centres.elements + block * centres.n_fours * 64;
            std::int32_t lanes[16] = {};
            for (std::size_t f = 0; f < centres.n_fours; ++f, four += 64)
                for (std::size_t lane = 0; lane < 16; ++lane)
                    for (std::size_t i = 0; i < 4; ++i) lanes[lane] += queries[q].elements[4 * f + i] * four[4 * lane + i];
            for (std::size_t lane = 0; lane < 16; ++lane) {
                const std::size_t centre = block * 16 + lane;
                scores[q * centres.n_blocks * 16 + centre] = centres.norms[centre] -
                                                             queries[q].step * static_cast<float>(lanes[lane]) -
                                                             queries[q].lowest * centres.sums[centre];
            }
        }
}

[[maybe_unused]] std::size_t at_most_by_loops(const float* scores, std::size_t count, float bound,
                                              std::uint32_t* places) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        places[found] = static_cast<std::uint32_t>(i);
        found += scores[i] <= bound;
    }
    return found;
}

template <class T>
HAMTARGET_INLINE std::size_t count_numbers(const T* numbers, std::size_t count, T bound) {
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < count; ++i) found += numbers[i] <= bound;
    return found;
}

[[maybe_unused]] std::int32_t bound_of_sums_by_loops(const std::int32_t* sums, std::size_t n_sums, std::size_t count) {
    std::int32_t smallest = sums[0], largest = sums[0];
    for (std::size_t i = 1; i < n_sums; ++i) {
        smallest = smaller(smallest, sums[i]);
        largest = sums[i] < largest ? largest : sums[i];
    }
    std::int64_t low = std::int64_t{smallest} - 1, high = largest;
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        const std::size_t below = count_numbers(sums, n_sums, static_cast<std::int32_t>(middle));
        if (below == count) return static_cast<std::int32_t>(middle);
        (below < count ? low : high) = middle;
    }
    return static_cast<std::int32_t>(high);
}

[[maybe_unused]] std::size_t keep_sums_by_loops(std::int32_t* sums, std::uint32_t* places, std::size_t n_sums,
                                                std::int32_t bound) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n_sums; ++i) {
        const std::int32_t sum = sums[i];
        sums[kept] = sum;
        places[kept] = places[i];
        kept += sum <= bound;
    }
    return kept;
}

// The smallest number of each of several sets: of these, `count` are at most a bound only if at least as many of all
// numbers are. There are fewer of them to look at; where they are too few, all numbers are looked at.
[[maybe_unused]] float bound_of_scores_by_loops(const float* scores, std::size_t n_blocks, std::size_t count) {
    constexpr std::size_t kSets = 256, kBlocks = kSets / 16;
    float smallest[kSets];
    const float* numbers = scores;
    std::size_t n_numbers = n_blocks * 16;
    if (n_numbers >= 4 * kSets && count <= kSets / 3) {
        Floats16 sets[kBlocks];
        for (Floats16& set : sets) set = Floats16{} + __builtin_inff();
        std::size_t block = 0;
        for (; block + kBlocks <= n_blocks; block += kBlocks)
            for (std::size_t i = 0; i < kBlocks; ++i) sets[i] = smaller16(sets[i], load16(scores + (block + i) * 16));
        for (std::size_t i = 0; block + i < n_blocks; ++i) sets[i] = smaller16(sets[i], load16(scores + (block + i) * 16));
        for (std::size_t i = 0; i < kBlocks; ++i) store16(smallest + 16 * i, sets[i]);
        numbers = smallest;
        n_numbers = kSets;
    }
    Floats16 lows = Floats16{} + __builtin_inff(), highs = Floats16{} - __builtin_inff();
    for (std::size_t i = 0; i < n_numbers; i += 16) {
        const Floats16 some = load16(numbers + i);
        lows = smaller16(lows, some);
        // Infinity fills up the last block.
        highs = larger16(highs, some < __builtin_inff() ? some : highs);
    }
    float low = -largest16(-lows)[0], high = largest16(highs)[0];
    const std::size_t enough = count + count / 16;
    for (int step = 0; step < 40; ++step) {
        // The best are few, and far from the mean.
        const float middle = step < 2 ? low + (high - low) / 4 : low + (high - low) / 2;
        if (!(middle > low && middle < high)) break;
        const std::size_t below = count_numbers(numbers, n_numbers, middle);
        (below < count ? low : high) = middle;
        if (below >= count && below <= enough) break;
    }
    return high;
}

// Compare kRows rows with all centres.
template <std::size_t kRows>
HAMTARGET_INLINE void nearest_of_rows(const float* rows, std::size_t n_dims, const float* centres, const float* norms,
                                      std::size_t n_blocks, std::int32_t* best, float* scores) {
    Floats16 smallest[kRows];
    Ints16 where[kRows];
    for (std::size_t r = 0; r < kRows; ++r) {
        smallest[r] = Floats16{} + __builtin_inff();
        where[r] = Ints16{};
    }
    for (std::size_t block = 0; block < n_blocks; ++block) {
        const float* numbers = centres + block * n_dims * 16;
        Floats16 sums[kRows];
        for (std::size_t r = 0; r < kRows; ++r) sums[r] = load16(norms + block * 16);
        for (std::size_t d = 0; d < n_dims; ++d) {
            const Floats16 centre = load16(numbers + d * 16);
            for (std::size_t r = 0; r < kRows; ++r) sums[r] -= centre * rows[r * n_dims + d];
        }
        for (std::size_t r = 0; r < kRows; ++r) {
            const Ints16 is_less = sums[r] < smallest[r];
            smallest[r] = is_less ? sums[r] : smallest[r];
            where[r] = is_less ? Ints16{} + static_cast<std::int32_t>(block) : where[r];
        }
    }
    for (std::size_t r = 0; r < kRows; ++r) {
        float lowest = __builtin_inff();
        std::int32_t at = 0;
        for (std::int32_t lane = 0; lane < 16; ++lane) {
            const std::int32_t centre = where[r][lane] * 16 + lane;
            if (smallest[r][lane] < lowest || (smallest[r][lane] == lowest && centre < at)) {
                lowest = smallest[r][lane];
                at = centre;
            }
        }
        best[r] = at;
        scores[r] = lowest;
    }
}

[[maybe_unused]] void nearest_by_loops(const float* rows, std::size_t n_rows, std::size_t n_dims, const float* centres,
                                       const float* norms, std::size_t n_blocks, std::int32_t* best, float* scores) {
    constexpr std::size_t kRows = 8;
    std::size_t row = 0;
    for (; row + kRows <= n_rows; row += kRows)
        nearest_of_rows<kRows>(rows + row * n_dims, n_dims, centres, norms, n_blocks, best + row, scores + row);
    for (; row < n_rows; ++row)
        nearest_of_rows<1>(rows + row * n_dims, n_dims, centres, norms, n_blocks, best + row, scores + row);
}

[[maybe_unused]] void sketch_by_loops(const float* vector, std::size_t n_parts, std::size_t part_dims,
                                      const float* entries, const float* norms, std::uint8_t* values) {
    for (std::size_t part = 0; part < n_parts; ++part) {
        Floats16 scores = load16(norms + part * 16);
        for (std::size_t d = 0; d < part_dims; ++d)
            scores -= load16(entries + (part * part_dims + d) * 16) * vector[part * part_dims + d];
        std::uint8_t best = 0;
        float lowest = scores[0];
        for (std::uint8_t entry = 1; entry < 16; ++entry) {
            best = scores[entry] < lowest ? entry : best;
            lowest = scores[entry] < lowest ? scores[entry] : lowest;
        }
        values[part] = best;
    }
}

[[maybe_unused]] void part_products_by_loops(const float* vector, std::size_t n_parts, std::size_t part_dims,
                                             const float* entries, float* products) {
    for (std::size_t part = 0; part < n_parts; ++part) {
        Floats16 sums{};
        for (std::size_t d = 0; d < part_dims; ++d)
            sums += load16(entries + (part * part_dims + d) * 16) * vector[part * part_dims + d];
        store16(products + part * 16, sums);
    }
}

[[maybe_unused]] float widest_by_loops(const float* products, std::size_t n_parts) {
    Floats16 widest{};
    for (std::size_t part = 0; part < n_parts; ++part) {
        const Floats16 some = load16(products + part * 16);
        widest = larger16(widest, largest16(some) + largest16(-some));
    }
    return widest[0];
}

[[maybe_unused]] void quantise_by_loops(const float* products, std::size_t n_parts, float scale,
                                        std::uint8_t* entries) {
    using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
    for (std::size_t part = 0; part < n_parts; ++part) {
        const Floats16 some = load16(products + part * 16);
        Floats16 scaled = (largest16(some) - some) * scale + 0.5f;
        scaled = scaled > 0 ? scaled : Floats16{};
        scaled = scaled < 255 ? scaled : Floats16{} + 255.0f;
        const Bytes16 bytes = __builtin_convertvector(__builtin_convertvector(scaled, Ints16), Bytes16);
        std::memcpy(entries + part * 16, &bytes, sizeof bytes);
    }
}

constexpr NeighborKernel neighbor_kernel_by_loops(const char* name) {
    return {.name = name,
            .scan = scan_by_loops,
            .squares = {squares_by_loops<Int8Row>, squares_by_loops<Uint8Row>, squares_by_loops<Float16Row>,
                        squares_by_loops<Float32Row>},
            .products = {products_by_loops<Int8Row>, products_by_loops<Uint8Row>, products_by_loops<Float16Row>,
                         products_by_loops<Float32Row>},
            .centre_scores = centre_scores_by_loops,
            .bound_of_scores = bound_of_scores_by_loops,
            .at_most = at_most_by_loops,
            .bound_of_sums = bound_of_sums_by_loops,
            .keep_sums = keep_sums_by_loops,
            .dot = dot,
            .nearest = nearest_by_loops,
            .sketch = sketch_by_loops,
            .part_products = part_products_by_loops,
            .widest = widest_by_loops,
            .quantise = quantise_by_loops};
}

}  // namespace

}  // namespace hamtarget
