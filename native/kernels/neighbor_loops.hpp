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

HAMTARGET_INLINE void store16(float* to, Floats16 values) { std::memcpy(to, &values, sizeof values); }

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
constexpr std::size_t kRowsAhead = 6;

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
std::size_t count_by_loops(const T* numbers, std::size_t count, T bound) {
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < count; ++i) found += numbers[i] <= bound;
    return found;
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

constexpr NeighborKernel neighbor_kernel_by_loops(const char* name) {
    return {.name = name,
            .scan = scan_by_loops,
            .squares = {squares_by_loops<Int8Row>, squares_by_loops<Uint8Row>, squares_by_loops<Float16Row>,
                        squares_by_loops<Float32Row>},
            .products = {products_by_loops<Int8Row>, products_by_loops<Uint8Row>, products_by_loops<Float16Row>,
                         products_by_loops<Float32Row>},
            .centre_scores = centre_scores_by_loops,
            .at_most = at_most_by_loops,
            .count_scores = count_by_loops<float>,
            .count_sums = count_by_loops<std::int32_t>,
            .nearest = nearest_by_loops,
            .sketch = sketch_by_loops,
            .part_products = part_products_by_loops};
}

}  // namespace

}  // namespace hamtarget
