// An index as a snapshot file. docs/format.md lists the sections.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "multi_index.hpp"
#include "snapshot.hpp"

namespace hamtarget {

inline constexpr const char* kIndexKind = "multi-index";

namespace index_file {

// The section "index": what the index is, in this order.
enum Field : std::size_t { kNumBytes, kNumTables, kRadius, kNumDims, kElement, kMetric, kNumParts, kNumFields };

inline std::string name(std::size_t part, const std::string& what) { return std::to_string(part) + "/" + what; }
inline std::string name(std::size_t part, std::size_t table, const std::string& what) {
    return name(part, std::to_string(table) + "/" + what);
}

template <class T>
std::span<const T> span_of(const Array<const T>& array) {
    return {array.data(), array.size()};
}

// Reads one part, trusting nothing: a forged file has correct checksums.
class PartReader {
  public:
    PartReader(std::shared_ptr<const SnapshotFile> file, const Layout& layout, std::size_t part)
        : file_(std::move(file)), layout_(layout), part_(part) {}

    Part read() {
        Segment segment;
        segment.codes = array<std::uint8_t>(name(part_, "codes"));
        const std::size_t n_rows = segment.n_rows = segment.codes.size() / layout_.n_bytes;
        if (n_rows == 0 || n_rows > 0xFFFFFFFEu || segment.codes.size() % layout_.n_bytes)
            reject("section '" + name(part_, "codes") + "' holds no, too many or no whole codes");
        segment.embeddings = array<std::uint8_t>(name(part_, "embeddings"), n_rows * layout_.embedding_bytes);
        segment.ids = read_ids(n_rows);

        const auto key_lengths = file_->section<std::uint32_t>(name(part_, "key_bits"));
        if (!key_lengths.empty() && key_lengths.size() != layout_.n_tables)
            reject("part " + std::to_string(part_) + " has " + std::to_string(key_lengths.size()) +
                   " tables; expected " + std::to_string(layout_.n_tables));
        for (std::size_t j = 0; j < key_lengths.size(); ++j)
            segment.tables.push_back(read_table(segment, j, key_lengths[j]));

        Part part{nullptr, n_rows, 0, nullptr, nullptr};
        read_deleted(part);
        part.segment = std::make_shared<const Segment>(std::move(segment));
        return part;
    }

  private:
    [[noreturn]] void reject(const std::string& found) const { file_->reject(found); }

    template <class T>
    Array<const T> shared(std::span<const T> elements) const {
        return {file_, elements.data(), elements.size()};
    }
    template <class T>
    Array<const T> array(const std::string& section) const {
        return shared(file_->section<T>(section));
    }
    template <class T>
    Array<const T> array(const std::string& section, std::size_t count) const {
        return shared(file_->section<T>(section, count));
    }

    // Either the first id, of consecutive ones; or the first and what to add to it for each row; or all of them.
    IdColumn read_ids(std::size_t n_rows) const {
        const Array<const std::int64_t> ids = array<std::int64_t>(name(part_, "ids"));
        const Array<const std::uint32_t> above = array<std::uint32_t>(name(part_, "ids_above"));
        const bool wide = above.empty() && n_rows > 1 && ids.size() == n_rows;
        if (!wide && (ids.size() != 1 || (!above.empty() && above.size() != n_rows)))
            reject("sections '" + name(part_, "ids") + "' and '" + name(part_, "ids_above") +
                   "' have the wrong length");
        if (!wide && (n_rows > 1 || !above.empty()) && ids[0] > IdColumn::kMaxBase)
            reject("the ids of part " + std::to_string(part_) + " are too large");
        const IdColumn column = wide ? IdColumn(ids) : above.empty() ? IdColumn(ids[0]) : IdColumn(ids[0], above);
        for (std::size_t row = 1; row < n_rows; ++row)
            if (column[row] <= column[row - 1]) reject("the ids of part " + std::to_string(part_) + " do not ascend");
        return column;
    }

    void check_rows(const Array<const std::uint32_t>& rows, std::size_t n_rows, const std::string& section) const {
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (rows[i] >= n_rows)
                reject("section '" + section + "' names row " + std::to_string(rows[i]) + " of " +
                       std::to_string(n_rows));
    }

    Table read_table(const Segment& segment, std::size_t j, std::size_t key_length) const {
        const std::size_t n_bits = 8 * layout_.n_bytes, n_rows = segment.n_rows;
        const std::size_t start = substring_start(n_bits, layout_.n_tables, j);
        const std::size_t stop = substring_start(n_bits, layout_.n_tables, j + 1);
        if (key_length == 0 || key_length > std::min<std::size_t>(stop - start, kMaxKeyBits))
            reject("table " + std::to_string(j) + " has buckets of " + std::to_string(key_length) + " bits");
        Table table;
        table.key = {start, stop, key_length, layout_.n_bytes};
        table.offsets = array<std::uint32_t>(name(part_, j, "offsets"), (std::size_t{1} << key_length) + 1);
        table.codes = j == 0 ? segment.codes : array<std::uint8_t>(name(part_, j, "codes"), n_rows * layout_.n_bytes);
        table.rows = array<std::uint32_t>(name(part_, j, "rows"), n_rows);
        check_rows(table.rows, n_rows, name(part_, j, "rows"));
        const std::size_t last = table.offsets.size() - 1;
        bool ascend = table.offsets[0] == 0 && table.offsets[last] == n_rows;
        for (std::size_t b = 0; b < last; ++b) ascend &= table.offsets[b] <= table.offsets[b + 1];
        if (!ascend) reject("section '" + name(part_, j, "offsets") + "' does not ascend from 0 to the number of rows");
        table.mean_bucket = mean_bucket(table.offsets);
        return table;
    }

    void read_deleted(Part& part) const {
        const auto words = file_->section<std::uint64_t>(name(part_, "deleted"));
        if (words.empty()) return;
        if (words.size() != (part.n_rows + 63) / 64)
            reject("section '" + name(part_, "deleted") + "' has the wrong length");
        if (part.n_rows % 64 && words.back() >> (part.n_rows % 64))
            reject("section '" + name(part_, "deleted") + "' names rows past the last");
        for (const std::uint64_t word : words) part.n_deleted += static_cast<std::size_t>(std::popcount(word));
        part.deleted = std::make_shared<const std::vector<std::uint64_t>>(words.begin(), words.end());
    }

    std::shared_ptr<const SnapshotFile> file_;
    Layout layout_;
    std::size_t part_;
};

}  // namespace index_file

// Puts the index, as it is now, at `path`; searches and changes go on meanwhile.
inline void save_index(const MultiIndex& index, const std::filesystem::path& path) {
    using namespace index_file;
    const auto manifest = index.manifest();
    std::vector<Part> parts = manifest->parts;
    // A delta is written as the segment that it would become.
    for (Part& part : parts)
        if (part.delta) part = merged_part(index.layout(), {part});
    const EmbeddingKind& embedding = index.embedding();
    const std::uint64_t fields[kNumFields] = {index.layout().n_bytes,
                                              index.layout().n_tables,
                                              index.radius(),
                                              embedding.n_dims,
                                              static_cast<std::uint64_t>(embedding.element),
                                              static_cast<std::uint64_t>(embedding.metric),
                                              parts.size()};
    SnapshotWriter writer(kIndexKind);
    writer.add<std::uint64_t>("index", fields);
    std::vector<std::vector<std::uint32_t>> key_lengths(parts.size());
    std::vector<std::int64_t> first_ids(parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const Segment& segment = *parts[p].segment;
        first_ids[p] = segment.ids.base();
        const bool wide = !segment.ids.wide().empty();
        writer.add<std::int64_t>(name(p, "ids"), wide ? span_of(segment.ids.wide()) : std::span(&first_ids[p], 1));
        writer.add<std::uint32_t>(name(p, "ids_above"), span_of(segment.ids.above()));
        writer.add<std::uint8_t>(name(p, "codes"), span_of(segment.codes));
        writer.add<std::uint8_t>(name(p, "embeddings"), span_of(segment.embeddings));
        for (const Table& table : segment.tables)
            key_lengths[p].push_back(static_cast<std::uint32_t>(table.key.length()));
        writer.add<std::uint32_t>(name(p, "key_bits"), key_lengths[p]);
        for (std::size_t j = 0; j < segment.tables.size(); ++j) {
            writer.add<std::uint32_t>(name(p, j, "offsets"), span_of(segment.tables[j].offsets));
            if (j > 0) writer.add<std::uint8_t>(name(p, j, "codes"), span_of(segment.tables[j].codes));
            writer.add<std::uint32_t>(name(p, j, "rows"), span_of(segment.tables[j].rows));
        }
        const auto& deleted = parts[p].deleted;
        writer.add<std::uint64_t>(name(p, "deleted"), deleted ? std::span(*deleted) : std::span<const std::uint64_t>());
    }
    writer.commit(path);
}

// The index in a file. With `mapped`, its pages are read as they are needed and shared between processes.
inline std::unique_ptr<MultiIndex> open_index(const std::filesystem::path& path, bool mapped, const Kernel& kernel) {
    using namespace index_file;
    const auto access = mapped ? SnapshotFile::Access::map : SnapshotFile::Access::read;
    const auto file = std::make_shared<const SnapshotFile>(SnapshotFile::open(path, kIndexKind, access));
    const auto fields = file->section<std::uint64_t>("index", kNumFields);
    const Layout cut{fields[kNumBytes], fields[kNumTables], 0};
    if (cut.n_bytes < 1 || cut.n_bytes > kMaxCodeBytes || cut.n_tables > 8 * cut.n_bytes ||
        fields[kRadius] >= 8 * cut.n_bytes || fields[kNumDims] > kMaxDims ||
        fields[kElement] > static_cast<std::uint64_t>(Element::kInt8) ||
        fields[kMetric] > static_cast<std::uint64_t>(Metric::kDot) || fields[kNumParts] > kMaxParts)
        file->reject("section 'index' describes an index that cannot be");
    const EmbeddingKind embedding{fields[kNumDims], static_cast<Element>(fields[kElement]),
                                  static_cast<Metric>(fields[kMetric])};
    auto index = std::make_unique<MultiIndex>(cut, fields[kRadius], embedding, kernel);
    Manifest manifest;
    for (std::size_t p = 0; p < fields[kNumParts]; ++p)
        manifest.parts.push_back(PartReader(file, index->layout(), p).read());
    index->reset(std::move(manifest));
    return index;
}

}  // namespace hamtarget
