#include "neighbor_core.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "../../kernels/embedding_kernel.hpp"
#include "../errors.hpp"
#include "in_threads.hpp"

namespace hamtarget {

namespace {

// Rows that a thread encodes at a time.
constexpr std::size_t kEncodedRows = 1024;
// A generation is merged with the next one unless it is this many times larger.
constexpr std::size_t kGrowth = 4;
// A generation of which this share of the rows, one in four, is deleted is built again.
constexpr std::size_t kDeletedShare = 4;

// Looking up an id takes about this many times as long as passing by a row.
constexpr std::size_t kLookUpCost = 64;

constexpr std::size_t kMostDims = 65536;
constexpr std::size_t kMostCells = std::size_t{1} << 24;

NeighborShape shape_of(std::size_t n_dims, const NeighborMetric& metric, RowType row_type, Array<const float> centres,
                       Array<const float> codebooks, std::size_t part_dims, const Array<const float>& rotation) {
    const auto expect = [](bool holds, const std::string& text) {
        if (!holds) throw InputError(text);
    };
    expect(n_dims >= 1 && n_dims <= kMostDims, "n_dims is " + std::to_string(n_dims) + "; expected 1 to 65,536");
    const std::size_t n_cells = centres.size() / n_dims;
    expect(n_cells >= 1 && n_cells <= kMostCells && centres.size() == n_cells * n_dims,
           "centres have " + std::to_string(centres.size()) + " elements; expected rows of " + std::to_string(n_dims) +
               ", at least one and at most 2^24");
    expect(part_dims >= 1 && part_dims <= 8,
           "the codebooks have parts of " + std::to_string(part_dims) + " dimensions; expected 1 to 8");
    const std::size_t n_parts = (n_dims + part_dims - 1) / part_dims;
    expect(codebooks.size() == n_parts * kPartEntries * part_dims,
           "the codebooks have " + std::to_string(codebooks.size()) + " elements; expected " +
               std::to_string(n_parts) + " parts of 16 entries of " + std::to_string(part_dims) + " dimensions for " +
               std::to_string(n_dims) + " dimensions");
    expect(rotation.empty() || rotation.size() == n_dims * n_dims,
           "the rotation has " + std::to_string(rotation.size()) + " elements; expected a square of " +
               std::to_string(n_dims));
    return {metric, row_type, Cells(std::move(centres), n_cells, n_dims, metric.has_biases),
            Sketcher(std::move(codebooks), n_parts, part_dims, metric.has_biases)};
}

// The nearest float16, ties to even.
std::uint16_t half_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits >= 0x47800000) return sign | 0x7C00;
    if (bits < 0x38800000) {
        // Subnormal: adding 0.5 puts the last bit that is kept where rounding takes place.
        float magnitude;
        std::memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        std::memcpy(&bits, &magnitude, 4);
        return static_cast<std::uint16_t>(sign | (bits - 0x3F000000));
    }
    bits += 0xFFF + (bits >> 13 & 1);
    return static_cast<std::uint16_t>(sign | (bits - 0x38000000) >> 13);
}

// Turns rows into what is stored.
class RowWriter {
  public:
    explicit RowWriter(const NeighborShape& shape) : shape_(shape) {}

    void write_floats(const float* row, std::uint8_t* bytes, float* scale) const {
        const std::size_t n = shape_.n_dims();
        switch (shape_.row_type) {
            case RowType::kFloat32: std::memcpy(bytes, row, 4 * n); return;
            case RowType::kFloat16:
                for (std::size_t d = 0; d < n; ++d) {
                    const std::uint16_t half = half_of(row[d]);
                    std::memcpy(bytes + 2 * d, &half, 2);
                }
                return;
            case RowType::kUint8:
                for (std::size_t d = 0; d < n; ++d) {
                    if (!(row[d] >= 0 && row[d] <= 255))
                        throw InputError("a vector has the element " + std::to_string(row[d]) +
                                         "; expected 0 to 255 for rows of uint8");
                    bytes[d] = static_cast<std::uint8_t>(std::lround(row[d]));
                }
                return;
            case RowType::kInt8:
                float most = 0;
                for (std::size_t d = 0; d < n; ++d) most = std::max(most, std::abs(row[d]));
                *scale = most > 0 ? most / 127 : 1;
                // A row of tiny numbers, whose scale is 0, is as good as zero.
                for (std::size_t d = 0; d < n; ++d) {
                    const float scaled = *scale > 0 ? row[d] / *scale : 0.0f;
                    bytes[d] = static_cast<std::uint8_t>(
                        static_cast<std::int8_t>(std::lround(std::clamp(scaled, -127.0f, 127.0f))));
                }
        }
    }

    void write(const NewVectors& vectors, std::size_t row, const float* floats, std::uint8_t* bytes,
               float* scale) const {
        const std::size_t n = shape_.n_dims();
        if (vectors.uint8s && shape_.row_type == RowType::kUint8) {
            std::memcpy(bytes, vectors.uint8s + row * n, n);
        } else if (vectors.int8s && shape_.row_type == RowType::kInt8) {
            std::memcpy(bytes, vectors.int8s + row * n, n);
            *scale = 1;
        } else {
            write_floats(floats, bytes, scale);
        }
    }

  private:
    const NeighborShape& shape_;
};

void widen(const NewVectors& vectors, std::size_t first, std::size_t count, float* floats) {
    if (vectors.floats) std::copy_n(vectors.floats + first, count, floats);
    if (vectors.uint8s) std::copy_n(vectors.uint8s + first, count, floats);
    if (vectors.int8s) std::copy_n(vectors.int8s + first, count, floats);
}

// Write a kept vector as floats.
void write_kept(const NeighborShape& shape, const Generation& rows, std::size_t row, float* floats) {
    const std::size_t n = shape.n_dims();
    const std::uint8_t* bytes = rows.vectors.data() + row * shape.vector_bytes();
    switch (shape.row_type) {
        case RowType::kFloat32: std::memcpy(floats, bytes, 4 * n); return;
        case RowType::kFloat16: {
            std::vector<std::uint16_t> halves(n);
            std::memcpy(halves.data(), bytes, 2 * n);
            supported_embedding_kernels().front()->widen(halves.data(), floats, n);
            return;
        }
        case RowType::kUint8: std::copy_n(bytes, n, floats); return;
        case RowType::kInt8:
            for (std::size_t d = 0; d < n; ++d) floats[d] = rows.scales[row] * static_cast<std::int8_t>(bytes[d]);
    }
}

// Sorted ids that are looked for among the rows of parts.
class WantedIds {
  public:
    WantedIds(const std::int64_t* ids, std::size_t count) : sorted_(ids, ids + count) {
        std::sort(sorted_.begin(), sorted_.end());
    }

    const std::vector<std::int64_t>& sorted() const { return sorted_; }

    // Call found(row) for each row of the part that is not deleted and has one of the ids.
    template <class Found>
    void each_in(NeighborPart& part, Found found) const {
        const IdArray& ids = part.rows->ids;
        if (sorted_.empty() || ids.size() == 0) return;
        if (sorted_.front() > ids.highest() || sorted_.back() < ids.lowest()) return;
        if (sorted_.size() * kLookUpCost < ids.size()) {
            if (!part.by_id) part.by_id = std::make_shared<const RowsById>(ids);
            for (const std::int64_t id : sorted_) {
                const std::size_t row = part.by_id->find(ids, id);
                if (row < ids.size() && !part.deleted.has(row)) found(row);
            }
            return;
        }
        const std::int64_t low = sorted_.front(), high = sorted_.back();
        for (std::size_t row = 0; row < ids.size(); ++row) {
            const std::int64_t id = ids[row];
            if (id < low || id > high || part.deleted.has(row)) continue;
            if (std::binary_search(sorted_.begin(), sorted_.end(), id)) found(row);
        }
    }

  private:
    std::vector<std::int64_t> sorted_;
};

}  // namespace

NeighborCore::NeighborCore(std::size_t n_dims, const NeighborMetric& metric, RowType row_type,
                           Array<const float> centres, Array<const float> codebooks, std::size_t part_dims,
                           Array<const float> rotation, const NeighborKernel& kernel)
    : shape_(shape_of(n_dims, metric, row_type, std::move(centres), std::move(codebooks), part_dims, rotation)),
      rotation_(std::move(rotation)),
      kernel_(&kernel),
      parts_(std::make_shared<const NeighborParts>()) {}

void NeighborCore::rotate(const float* vectors, std::size_t count, float* rotated) const {
    const std::size_t n = shape_.n_dims();
    if (rotation_.empty()) {
        std::copy_n(vectors, count * n, rotated);
        return;
    }
    std::fill_n(rotated, count * n, 0.0f);
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t from = 0; from < n; ++from) {
            const float element = vectors[i * n + from];
            const float* row = rotation_.data() + from * n;
            float* result = rotated + i * n;
            for (std::size_t to = 0; to < n; ++to) result[to] += element * row[to];
        }
}

std::size_t NeighborCore::size() const {
    std::size_t count = 0;
    for (const NeighborPart& part : *parts()) count += part.n_live();
    return count;
}

void NeighborCore::publish(NeighborParts parts) {
    auto next = std::make_shared<const NeighborParts>(std::move(parts));
    const std::lock_guard lock(parts_mutex_);
    parts_.swap(next);
}

NewRows NeighborCore::encode(const std::int64_t* ids, std::size_t n_rows, const NewVectors& vectors,
                             std::size_t n_threads) {
    NewRows rows;
    rows.resize(shape_, n_rows);
    std::copy_n(ids, n_rows, rows.ids.data());
    const std::size_t n_dims = shape_.n_dims(), n_parts = shape_.sketcher.layout().n_parts;
    if (!packed_centres_)
        packed_centres_ =
            std::make_unique<const PackedCentres>(shape_.cells.centres().data(), shape_.cells.size(), n_dims);
    const PackedCentres& centres = *packed_centres_;
    const RowWriter writer(shape_);
    const auto make_worker = [&] {
        return [&, floats = std::vector<float>(kEncodedRows * n_dims),
                rotated = std::vector<float>(rotation_.empty() ? 0 : kEncodedRows * n_dims),
                residual = std::vector<float>(shape_.sketcher.padded_dims()),
                scores = std::vector<float>(kEncodedRows)](std::size_t first, std::size_t last) mutable {
            widen(vectors, first * n_dims, (last - first) * n_dims, floats.data());
            const float* placed = floats.data();
            if (!rotation_.empty()) {
                rotate(floats.data(), last - first, rotated.data());
                placed = rotated.data();
            }
            centres.nearest(*kernel_, placed, last - first, rows.cells.data() + first, scores.data());
            for (std::size_t row = first; row < last; ++row) {
                const float* centre = shape_.cells.centre(static_cast<std::size_t>(rows.cells[row]));
                for (std::size_t d = 0; d < n_dims; ++d) residual[d] = placed[(row - first) * n_dims + d] - centre[d];
                shape_.sketcher.sketch(*kernel_, residual.data(), rows.values.data() + row * n_parts);
                writer.write(vectors, row, floats.data() + (row - first) * n_dims,
                             rows.vectors.data() + row * shape_.vector_bytes(),
                             shape_.has_scales() ? rows.scales.data() + row : nullptr);
            }
        };
    };
    in_threads(n_rows, kEncodedRows, n_threads, make_worker);
    return rows;
}

void NeighborCore::add(const std::int64_t* ids, std::size_t n_rows, const NewVectors& vectors, std::size_t n_threads) {
    if (n_rows == 0) return;
    const std::lock_guard writing(write_mutex_);
    const WantedIds wanted(ids, n_rows);
    const auto& sorted = wanted.sorted();
    if (sorted.front() < 0)
        throw InputError("id " + std::to_string(sorted.front()) + " is negative; expected ids from 0 on");
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
        throw InputError("id " + std::to_string(*twice) + " is given twice; expected each id once");
    NeighborParts next = *parts();
    for (NeighborPart& part : next)
        wanted.each_in(part, [&](std::size_t row) {
            throw InputError("id " + std::to_string(part.rows->ids[row]) +
                             " is in the index already; delete it first, or choose another id");
        });
    next.push_back({build_generation(shape_, *kernel_, encode(ids, n_rows, vectors, n_threads)), {}});
    while (next.size() > 1 && next[next.size() - 2].n_live() <= kGrowth * next.back().n_live()) {
        const NeighborParts last_two(next.end() - 2, next.end());
        next.pop_back();
        next.back() = {merge_parts(shape_, *kernel_, last_two), {}};
    }
    publish(std::move(next));
}

std::size_t NeighborCore::remove(const std::int64_t* ids, std::size_t count) {
    const std::lock_guard writing(write_mutex_);
    const WantedIds wanted(ids, count);
    NeighborParts next = *parts();
    std::size_t n_removed = 0;
    for (NeighborPart& part : next) {
        std::vector<std::size_t> found;
        wanted.each_in(part, [&](std::size_t row) { found.push_back(row); });
        if (found.empty()) continue;
        n_removed += found.size();
        auto marks = part.deleted.marks ? std::make_shared<std::vector<std::uint64_t>>(*part.deleted.marks)
                                        : std::make_shared<std::vector<std::uint64_t>>((part.rows->n_rows + 63) / 64);
        for (const std::size_t row : found) (*marks)[row / 64] |= std::uint64_t{1} << row % 64;
        part.deleted = {std::move(marks), part.deleted.count + found.size()};
        if (part.deleted.count * kDeletedShare > part.rows->n_rows)
            part = {merge_parts(shape_, *kernel_, {part}), {}};
    }
    std::erase_if(next, [](const NeighborPart& part) { return part.n_live() == 0; });
    publish(std::move(next));
    return n_removed;
}

void NeighborCore::contains(const std::int64_t* ids, std::size_t count, std::uint8_t* found) {
    const std::lock_guard writing(write_mutex_);
    const WantedIds wanted(ids, count);
    std::vector<std::int64_t> present;
    NeighborParts next = *parts();
    for (NeighborPart& part : next)
        wanted.each_in(part, [&](std::size_t row) { present.push_back(part.rows->ids[row]); });
    std::sort(present.begin(), present.end());
    for (std::size_t i = 0; i < count; ++i)
        found[i] = std::binary_search(present.begin(), present.end(), ids[i]) ? 1 : 0;
    // The same rows, with the order in which they were looked up.
    publish(std::move(next));
}

void NeighborCore::get(const std::int64_t* ids, std::size_t count, float* vectors) {
    struct Row {
        std::int64_t id;
        const Generation* rows;
        std::size_t row;
    };
    std::vector<Row> present;
    NeighborParts now;
    {
        const std::lock_guard writing(write_mutex_);
        const WantedIds wanted(ids, count);
        now = *parts();
        for (NeighborPart& part : now)
            wanted.each_in(part, [&](std::size_t row) {
                present.push_back({part.rows->ids[row], part.rows.get(), row});
            });
        // The same rows, with the order in which they were looked up.
        publish(now);
    }
    std::sort(present.begin(), present.end(), [](const Row& a, const Row& b) { return a.id < b.id; });
    for (std::size_t i = 0; i < count; ++i) {
        const auto place = std::lower_bound(present.begin(), present.end(), ids[i],
                                            [](const Row& row, std::int64_t id) { return row.id < id; });
        if (place == present.end() || place->id != ids[i])
            throw InputError("id " + std::to_string(ids[i]) + " is not in this index; expected ids that were added");
        write_kept(shape_, *place->rows, place->row, vectors + i * shape_.n_dims());
    }
}

std::shared_ptr<const Generation> NeighborCore::compact() {
    const std::lock_guard writing(write_mutex_);
    const NeighborParts now = *parts();
    if (now.size() == 1 && now[0].deleted.count == 0) return now[0].rows;
    auto merged = merge_parts(shape_, *kernel_, now);
    publish(merged->n_rows ? NeighborParts{{merged, {}}} : NeighborParts{});
    return merged;
}

void NeighborCore::reset(Generation generation) {
    check_generation(shape_, generation);
    const std::lock_guard writing(write_mutex_);
    NeighborParts next;
    if (generation.n_rows) next.push_back({std::make_shared<const Generation>(std::move(generation)), {}});
    publish(std::move(next));
}

std::vector<std::int64_t> NeighborCore::ids() const {
    std::vector<std::int64_t> result;
    for (const NeighborPart& part : *parts())
        for (std::size_t row = 0; row < part.rows->n_rows; ++row)
            if (!part.deleted.has(row)) result.push_back(part.rows->ids[row]);
    std::sort(result.begin(), result.end());
    return result;
}

void nearest_centres(const NeighborKernel& kernel, const float* rows, std::size_t n_rows, const float* centres,
                     std::size_t n_centres, std::size_t n_dims, std::size_t n_threads, std::int32_t* nearest,
                     float* squares) {
    if (n_centres < 1 || n_dims < 1)
        throw InputError("there are " + std::to_string(n_centres) + " centres of " + std::to_string(n_dims) +
                         " dimensions; expected at least one of each");
    const PackedCentres packed(centres, n_centres, n_dims);
    const auto make_worker = [&] {
        return [&](std::size_t first, std::size_t last) {
            packed.nearest(kernel, rows + first * n_dims, last - first, nearest + first, squares + first);
            for (std::size_t row = first; row < last; ++row) {
                float norm = 0;
                for (std::size_t d = 0; d < n_dims; ++d) norm += rows[row * n_dims + d] * rows[row * n_dims + d];
                squares[row] = std::max(0.0f, 2 * squares[row] + norm);
            }
        };
    };
    in_threads(n_rows, kEncodedRows, n_threads, make_worker);
}

}  // namespace hamtarget
