#include "generation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "../errors.hpp"

namespace hamtarget {

namespace {

constexpr std::size_t kMostRows = std::numeric_limits<std::uint32_t>::max() / 2;

std::size_t n_blocks_of(std::size_t n_rows) { return (n_rows + kSketchBlockRows - 1) / kSketchBlockRows; }

Array<const std::uint32_t> blocks_of(const Array<const std::uint32_t>& offsets) {
    Array<std::uint32_t> blocks(offsets.size());
    blocks[0] = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i)
        blocks[i] = blocks[i - 1] + static_cast<std::uint32_t>(n_blocks_of(offsets[i] - offsets[i - 1]));
    return blocks;
}

// The bits of biases reach over this share of all rows. The others seem nearer than they are, and are compared in vain.
constexpr double kShareInReach = 0.999;

// Biases of rows that lie in the order of their cells.
struct Biases {
    Array<float> of_cells;
    std::vector<float> of_rows;
    float step = 0;
};

Biases biases_of(const NeighborShape& shape, const NeighborKernel& kernel, const Array<std::uint32_t>& offsets,
                 const std::uint8_t* values) {
    const std::size_t n_cells = shape.cells.size(), n_parts = shape.sketcher.layout().n_parts;
    Biases result{Array<float>(n_cells), std::vector<float>(offsets[n_cells]), 0};
    std::vector<float> centre(shape.sketcher.padded_dims()), parts(n_parts * kPartEntries);
    for (std::size_t cell = 0; cell < n_cells; ++cell) {
        result.of_cells[cell] = 0;
        if (offsets[cell] == offsets[cell + 1]) continue;
        std::copy_n(shape.cells.centre(cell), shape.n_dims(), centre.begin());
        shape.sketcher.cell_biases(kernel, centre.data(), parts.data());
        float lowest = std::numeric_limits<float>::max();
        for (std::size_t row = offsets[cell]; row < offsets[cell + 1]; ++row) {
            float bias = 0;
            for (std::size_t part = 0; part < n_parts; ++part)
                bias += parts[part * kPartEntries + values[row * n_parts + part]];
            if (!std::isfinite(bias)) bias = 0;
            result.of_rows[row] = bias;
            lowest = std::min(lowest, bias);
        }
        result.of_cells[cell] = lowest;
        for (std::size_t row = offsets[cell]; row < offsets[cell + 1]; ++row) result.of_rows[row] -= lowest;
    }
    std::vector<float> sorted = result.of_rows;
    if (sorted.empty()) return result;
    const auto in_reach = static_cast<std::ptrdiff_t>(kShareInReach * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), sorted.begin() + in_reach, sorted.end());
    result.step = sorted[static_cast<std::size_t>(in_reach)] / 255;
    return result;
}

}  // namespace

IdArray::IdArray(const std::vector<std::int64_t>& ids) {
    const auto fits = [](std::int64_t id) { return id >= 0 && id <= std::numeric_limits<std::uint32_t>::max(); };
    if (std::all_of(ids.begin(), ids.end(), fits)) {
        Array<std::uint32_t> small(ids.size());
        for (std::size_t i = 0; i < ids.size(); ++i) small[i] = static_cast<std::uint32_t>(ids[i]);
        small_ = small;
    } else {
        Array<std::int64_t> large(ids.size());
        std::copy(ids.begin(), ids.end(), large.data());
        large_ = large;
    }
    find_range();
}

IdArray::IdArray(Array<const std::uint32_t> small, Array<const std::int64_t> large)
    : small_(std::move(small)), large_(std::move(large)) {
    find_range();
}

void IdArray::find_range() {
    if (size() == 0) return;
    lowest_ = highest_ = (*this)[0];
    for (std::size_t row = 1; row < size(); ++row) {
        lowest_ = std::min(lowest_, (*this)[row]);
        highest_ = std::max(highest_, (*this)[row]);
    }
}

RowsById::RowsById(const IdArray& ids) : rows_(ids.size()) {
    std::iota(rows_.begin(), rows_.end(), 0u);
    std::sort(rows_.begin(), rows_.end(), [&](std::uint32_t a, std::uint32_t b) { return ids[a] < ids[b]; });
}

std::size_t RowsById::find(const IdArray& ids, std::int64_t id) const {
    const auto place = std::lower_bound(rows_.begin(), rows_.end(), id,
                                        [&](std::uint32_t row, std::int64_t wanted) { return ids[row] < wanted; });
    return place != rows_.end() && ids[*place] == id ? *place : rows_.size();
}

void NewRows::resize(const NeighborShape& shape, std::size_t n_rows) {
    ids.resize(n_rows);
    cells.resize(n_rows);
    values.resize(n_rows * shape.sketcher.layout().n_parts);
    vectors.resize(n_rows * shape.vector_bytes());
    if (shape.has_scales()) scales.resize(n_rows);
}

std::shared_ptr<const Generation> build_generation(const NeighborShape& shape, const NeighborKernel& kernel,
                                                   const NewRows& rows) {
    const std::size_t n_rows = rows.size(), n_cells = shape.cells.size();
    if (n_rows > kMostRows)
        throw InputError("an index of " + std::to_string(n_rows) + " rows is too large; expected at most " +
                         std::to_string(kMostRows));
    Array<std::uint32_t> offsets(n_cells + 1);
    std::fill_n(offsets.data(), n_cells + 1, 0u);
    for (const std::int32_t cell : rows.cells) ++offsets[static_cast<std::size_t>(cell) + 1];
    for (std::size_t cell = 0; cell < n_cells; ++cell) offsets[cell + 1] += offsets[cell];
    const Array<const std::uint32_t> blocks = blocks_of(offsets);
    // Where each row goes.
    std::vector<std::uint32_t> next(offsets.data(), offsets.data() + n_cells), places(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) places[row] = next[static_cast<std::size_t>(rows.cells[row])]++;

    const std::size_t n_parts = shape.sketcher.layout().n_parts, vector_bytes = shape.vector_bytes();
    std::vector<std::uint8_t> values(n_rows * n_parts);
    Array<std::uint8_t> vectors(n_rows * vector_bytes);
    Array<float> scales(shape.has_scales() ? n_rows : 0);
    std::vector<std::int64_t> ids(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::size_t place = places[row];
        std::memcpy(values.data() + place * n_parts, rows.values.data() + row * n_parts, n_parts);
        std::memcpy(vectors.data() + place * vector_bytes, rows.vectors.data() + row * vector_bytes, vector_bytes);
        if (shape.has_scales()) scales[place] = rows.scales[row];
        ids[place] = rows.ids[row];
    }

    const SketchLayout& layout = shape.sketcher.layout();
    Biases biases;
    if (layout.has_bias) biases = biases_of(shape, kernel, offsets, values.data());
    Array<std::uint8_t> sketches(blocks[n_cells] * layout.block_bytes());
    if (!sketches.empty()) std::memset(sketches.data(), 0, sketches.n_bytes());
    for (std::size_t cell = 0; cell < n_cells; ++cell)
        for (std::size_t row = offsets[cell]; row < offsets[cell + 1]; ++row) {
            const std::size_t i = row - offsets[cell];
            std::uint8_t* block = sketches.data() + (blocks[cell] + i / kSketchBlockRows) * layout.block_bytes();
            for (std::size_t part = 0; part < n_parts; ++part)
                layout.put(block, i % kSketchBlockRows, part, values[row * n_parts + part]);
            if (!layout.has_bias || !(biases.step > 0)) continue;
            const auto bits = static_cast<unsigned>(std::min(biases.of_rows[row] / biases.step + 0.5f, 255.0f));
            layout.put(block, i % kSketchBlockRows, n_parts, static_cast<std::uint8_t>(bits >> 4));
            layout.put(block, i % kSketchBlockRows, n_parts + 1, static_cast<std::uint8_t>(bits & 15));
        }

    auto result = std::make_shared<Generation>();
    result->n_rows = n_rows;
    result->offsets = offsets;
    result->blocks = blocks;
    result->sketches = sketches;
    result->cell_biases = biases.of_cells;
    result->bias_step = biases.step;
    result->vectors = vectors;
    result->scales = scales;
    result->ids = IdArray(ids);
    return result;
}

std::shared_ptr<const Generation> merge_parts(const NeighborShape& shape, const NeighborKernel& kernel,
                                              const std::vector<NeighborPart>& parts) {
    std::size_t n_live = 0;
    for (const NeighborPart& part : parts) n_live += part.n_live();
    NewRows rows;
    rows.resize(shape, n_live);
    const SketchLayout& layout = shape.sketcher.layout();
    const std::size_t vector_bytes = shape.vector_bytes();
    std::size_t to = 0;
    for (const NeighborPart& part : parts) {
        const Generation& from = *part.rows;
        for (std::size_t cell = 0; cell < shape.cells.size(); ++cell)
            for (std::size_t row = from.offsets[cell]; row < from.offsets[cell + 1]; ++row) {
                if (part.deleted.has(row)) continue;
                const std::size_t i = row - from.offsets[cell];
                const std::uint8_t* block =
                    from.sketches.data() + (from.blocks[cell] + i / kSketchBlockRows) * layout.block_bytes();
                for (std::size_t p = 0; p < layout.n_parts; ++p)
                    rows.values[to * layout.n_parts + p] = layout.get(block, i % kSketchBlockRows, p);
                std::memcpy(rows.vectors.data() + to * vector_bytes, from.vectors.data() + row * vector_bytes,
                            vector_bytes);
                if (shape.has_scales()) rows.scales[to] = from.scales[row];
                rows.ids[to] = from.ids[row];
                rows.cells[to] = static_cast<std::int32_t>(cell);
                ++to;
            }
    }
    return build_generation(shape, kernel, rows);
}

void check_generation(const NeighborShape& shape, Generation& generation) {
    const auto expect = [](bool holds, const char* what) {
        if (!holds) throw InputError(std::string("the saved rows are damaged: ") + what);
    };
    const std::size_t n_cells = shape.cells.size(), n_rows = generation.n_rows;
    expect(n_rows <= kMostRows, "there are too many of them");
    expect(generation.offsets.size() == n_cells + 1, "offsets do not fit the number of cells");
    expect(generation.offsets[0] == 0 && generation.offsets[n_cells] == n_rows, "offsets do not fit the rows");
    for (std::size_t cell = 0; cell < n_cells; ++cell)
        expect(generation.offsets[cell] <= generation.offsets[cell + 1], "offsets do not ascend");
    generation.blocks = blocks_of(generation.offsets);
    const std::size_t n_blocks = generation.blocks[n_cells];
    const SketchLayout& layout = shape.sketcher.layout();
    expect(generation.sketches.size() == n_blocks * layout.block_bytes(), "sketches do not fit the offsets");
    expect(generation.vectors.size() == n_rows * shape.vector_bytes(), "vectors do not fit the rows");
    expect(generation.scales.size() == (shape.has_scales() ? n_rows : 0), "scales do not fit the rows");
    expect(generation.ids.size() == n_rows, "ids do not fit the rows");
    expect(generation.cell_biases.size() == (layout.has_bias ? n_cells : 0), "biases do not fit the cells");
    expect(std::isfinite(generation.bias_step) && generation.bias_step >= 0, "the step of biases is not a number");
    for (std::size_t cell = 0; cell < generation.cell_biases.size(); ++cell)
        expect(std::isfinite(generation.cell_biases[cell]), "a bias is not a number");
    for (std::size_t row = 0; row < generation.scales.size(); ++row)
        expect(std::isfinite(generation.scales[row]), "a scale is not a number");
    std::vector<std::int64_t> sorted(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) sorted[row] = generation.ids[row];
    std::sort(sorted.begin(), sorted.end());
    expect(sorted.empty() || sorted.front() >= 0, "an id is negative");
    expect(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "an id occurs twice");
}

}  // namespace hamtarget
