#include "index_file.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "snapshot_writer.hpp"

namespace hamtarget {

namespace {

// The section "index": what the index is, in this order.
enum Field : std::size_t { kNumBytes, kNumTables, kRadius, kNumDims, kElement, kMetric, kNumParts, kIsPlanned, kNumFields };

constexpr std::size_t kMostRows = 0xFFFFFFFE;

// Buckets of each table that are read at opening without verification, to estimate how full they are.
constexpr std::size_t kSampledBuckets = 16 * 1024;

std::string name(std::size_t part, const std::string& what) { return std::to_string(part) + "/" + what; }
std::string name(std::size_t part, std::size_t table, const std::string& what) {
    return name(part, std::to_string(table) + "/" + what);
}

template <class T>
std::span<const T> span_of(const Array<const T>& array) {
    return {array.data(), array.size()};
}

// Files hold row numbers as plain numbers.
const std::uint32_t* numbers_of(const RowNumber* rows) { return reinterpret_cast<const std::uint32_t*>(rows); }
const RowNumber* rows_of(const std::uint32_t* numbers) { return reinterpret_cast<const RowNumber*>(numbers); }

// Reads one part, trusting nothing: a forged file has correct checksums.
class PartReader {
  public:
    PartReader(std::shared_ptr<const SnapshotFile> file, const Layout& layout, std::size_t part,
               SnapshotFile::Access access, SnapshotFile::Check check)
        : file_(std::move(file)),
          layout_(layout),
          part_(part),
          is_mapped_(access == SnapshotFile::Access::map),
          checks_all_(check == SnapshotFile::Check::all) {}

    Part read() const {
        Segment segment;
        segment.codes = array<std::uint8_t>(name(part_, "codes"));
        segment.n_codes = segment.codes.size() / layout_.n_bytes;
        if (segment.n_codes == 0 || segment.n_codes > kMostRows || segment.codes.size() % layout_.n_bytes)
            reject("section '" + name(part_, "codes") + "' has " + std::to_string(segment.codes.size()) +
                   " bytes; expected 1 to 4,294,967,294 codes of " + std::to_string(layout_.n_bytes) + " bytes");
        segment.shared = read_shared(segment.n_codes);
        // Lists have all rows, and a number for each code.
        const std::size_t n_listed = segment.shared.lists().size();
        const std::size_t n_rows = segment.n_rows = n_listed ? n_listed - segment.n_codes : segment.n_codes;
        segment.embeddings = array<std::uint8_t>(name(part_, "embeddings"), n_rows * layout_.embedding_bytes);
        segment.ids = read_ids(n_rows);

        if (!checks_all_) file_->verify(name(part_, "key_bits"));
        const auto key_lengths = file_->section<std::uint32_t>(name(part_, "key_bits"));
        const bool is_expected = layout_.is_planned ? key_lengths.size() <= 8 * layout_.n_bytes
                                                    : key_lengths.size() == layout_.n_tables;
        if (!key_lengths.empty() && !is_expected)
            reject("part " + std::to_string(part_) + " has " + std::to_string(key_lengths.size()) +
                   " tables; expected " + std::to_string(layout_.n_tables));
        if (key_lengths.empty() && !segment.shared.empty())
            reject("part " + std::to_string(part_) + " has shared codes and no tables");
        const auto begins = checks_all_ && !segment.shared.empty() ? check_shared(segment) : std::vector<bool>();
        for (std::size_t j = 0; j < key_lengths.size(); ++j)
            segment.tables.push_back(read_table(segment, j, key_lengths.size(), key_lengths[j], begins));
        segment.table_memory = file_;
        segment.is_verified = checks_all_ && !is_mapped_;

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

    // Which rows have each code, where rows share codes.
    SharedCodes read_shared(std::size_t n_codes) const {
        if (!file_->has(name(part_, "shared"))) return {};
        const auto lists = array<std::uint32_t>(name(part_, "shared"));
        if (lists.size() < 2 * n_codes || lists.size() > kMostRows)
            reject("section '" + name(part_, "shared") + "' has " + std::to_string(lists.size()) +
                   " numbers; expected two or more for each of " + std::to_string(n_codes) + " codes");
        return {lists, lists.size() - n_codes};
    }

    // Return for each number in the lists whether a list begins with it; reject lists that do not have each row once.
    std::vector<bool> check_shared(const Segment& segment) const {
        const auto& lists = segment.shared.lists();
        std::vector<bool> begins(lists.size()), is_there(segment.n_rows);
        std::size_t n_lists = 0;
        for (std::size_t at = 0; at < lists.size(); ++n_lists) {
            const std::size_t stop = at + 1 + lists[at];
            bool is_list = lists[at] > 0 && stop <= lists.size();
            begins[at] = true;
            for (++at; is_list && at < stop; ++at) {
                is_list = lists[at] < segment.n_rows && !is_there[lists[at]];
                if (is_list) is_there[lists[at]] = true;
            }
            if (!is_list) reject("section '" + name(part_, "shared") + "' does not have each row once, in lists");
        }
        if (n_lists != segment.n_codes)
            reject("section '" + name(part_, "shared") + "' has " + std::to_string(n_lists) + " lists; expected " +
                   std::to_string(segment.n_codes));
        return begins;
    }

    // Either the first of consecutive ids; or the first and what to add to it for each row; or all of them.
    IdColumn read_ids(std::size_t n_rows) const {
        const Array<const Id> ids = array<Id>(name(part_, "ids"));
        const Array<const std::uint32_t> above = array<std::uint32_t>(name(part_, "ids_above"));
        const bool wide = above.empty() && n_rows > 1 && ids.size() == n_rows;
        if (!wide && (ids.size() != 1 || (!above.empty() && above.size() != n_rows)))
            reject("sections '" + name(part_, "ids") + "' and '" + name(part_, "ids_above") +
                   "' have the wrong length");
        if (!wide && (n_rows > 1 || !above.empty()) && ids[0] > IdColumn::kMaxBase)
            reject("the ids of part " + std::to_string(part_) + " are too large");
        const IdColumn column = wide ? IdColumn(ids) : above.empty() ? IdColumn(ids[0]) : IdColumn(ids[0], above);
        for (std::size_t row = 1; row < n_rows && checks_all_ && !column.is_consecutive(); ++row)
            if (column[row_number(row)] <= column[row_number(row - 1)])
                reject("the ids of part " + std::to_string(part_) + " do not ascend");
        return column;
    }

    Table read_table(const Segment& segment, std::size_t j, std::size_t n_tables, std::size_t key_length,
                     const std::vector<bool>& begins) const {
        const std::size_t n_bits = 8 * layout_.n_bytes, n_rows = segment.n_codes;
        const std::size_t start = substring_start(n_bits, n_tables, j);
        const std::size_t stop = substring_start(n_bits, n_tables, j + 1);
        if (key_length == 0 || key_length > std::min<std::size_t>(stop - start, kMaxKeyBits))
            reject("table " + std::to_string(j) + " has buckets of " + std::to_string(key_length) + " bits");
        const std::size_t n_offsets = (std::size_t{1} << key_length) + 1;
        Table table{.key = {start, stop, key_length, layout_.n_bytes},
                    .offsets = file_->section<std::uint32_t>(name(part_, j, "offsets"), n_offsets).data(),
                    .codes = segment.codes.data(),
                    .rows = j > 0 ? segment.tables[0].rows : nullptr,
                    .n_rows = static_cast<std::uint32_t>(n_rows)};
        if (j > 0 && file_->has(name(part_, j, "excerpts"))) {
            table.excerpts = read_excerpts(table, j);
        } else {
            table.rows = rows_of(file_->section<std::uint32_t>(name(part_, j, "rows"), n_rows).data());
            if (j > 0)
                table.codes = file_->section<std::uint8_t>(name(part_, j, "codes"), n_rows * layout_.n_bytes).data();
        }
        if (checks_all_) {
            check_rows(table, j, begins);
            check_offsets(table, j);
        }
        table.mean_bucket = checks_all_ ? mean_bucket(table) : mean_bucket(table, kSampledBuckets);
        return table;
    }

    // The length of the section says how long an excerpt is.
    Excerpts read_excerpts(const Table& table, std::size_t j) const {
        const auto entries = file_->section<std::uint8_t>(name(part_, j, "excerpts"));
        const std::size_t size = entries.size() / table.n_rows;
        constexpr std::size_t kPlaceBytes = sizeof(std::uint32_t);
        if (entries.size() % table.n_rows || size <= kPlaceBytes || size > layout_.n_bytes + kPlaceBytes)
            reject("section '" + name(part_, j, "excerpts") + "' has " + std::to_string(entries.size()) +
                   " bytes; expected " + std::to_string(table.n_rows) + " excerpts of codes of " +
                   std::to_string(layout_.n_bytes) + " bytes");
        Excerpts excerpts = excerpts_of(table.key, size - kPlaceBytes, layout_.n_bytes);
        excerpts.entries = entries.data();
        return excerpts;
    }

    // `begins` has the numbers of shared codes; where there are none, numbers are those of rows.
    void check_rows(const Table& table, std::size_t j, const std::vector<bool>& begins) const {
        if (table.has_excerpts()) return check_places(table, j);
        const auto is_number = [&](std::size_t number) {
            return begins.empty() ? number < table.n_rows : number < begins.size() && begins[number];
        };
        for (std::size_t i = 0; i < table.n_rows; ++i)
            if (!is_number(raw(table.rows[i])))
                reject("section '" + name(part_, j, "rows") + "' names row " + std::to_string(raw(table.rows[i])) +
                       " of " + std::to_string(table.n_rows));
    }

    void check_places(const Table& table, std::size_t j) const {
        for (std::size_t i = 0; i < table.n_rows; ++i) {
            std::uint32_t place;
            const Excerpts& excerpts = table.excerpts;
            std::memcpy(&place, excerpts.entries + i * excerpts.entry_bytes() + excerpts.n_bytes, sizeof place);
            if (place >= table.n_rows)
                reject("section '" + name(part_, j, "excerpts") + "' names place " + std::to_string(place) + " of " +
                       std::to_string(table.n_rows));
        }
    }

    void check_offsets(const Table& table, std::size_t j) const {
        const std::size_t last = table.n_offsets() - 1;
        bool ascend = table.offsets[0] == 0 && table.offsets[last] == table.n_rows;
        for (std::size_t b = 0; b < last; ++b) ascend &= table.offsets[b] <= table.offsets[b + 1];
        if (!ascend) reject("section '" + name(part_, j, "offsets") + "' does not ascend from 0 to the number of rows");
    }

    // Read the deleted bits, which are needed to count the rows. They are checked even without verification.
    void read_deleted(Part& part) const {
        if (!checks_all_) file_->verify(name(part_, "deleted"));
        const auto words = file_->section<std::uint64_t>(name(part_, "deleted"));
        if (words.empty()) return;
        if (words.size() != (part.n_rows + 63) / 64)
            reject("section '" + name(part_, "deleted") + "' has the wrong length");
        part.deleted = std::make_shared<const std::vector<std::uint64_t>>(words.begin(), words.end());
        if (part.n_rows % 64 && part.deleted->back() >> (part.n_rows % 64))
            reject("section '" + name(part_, "deleted") + "' names rows past the last");
        for (const std::uint64_t word : *part.deleted) part.n_deleted += static_cast<std::size_t>(std::popcount(word));
    }

    std::shared_ptr<const SnapshotFile> file_;
    Layout layout_;
    std::size_t part_;
    bool is_mapped_;
    bool checks_all_;
};

}  // namespace

void save_index(const MultiIndex& index, const std::filesystem::path& path) {
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
                                              parts.size(),
                                              index.layout().is_planned};
    SnapshotWriter writer(kIndexKind);
    writer.add<std::uint64_t>("index", fields);
    std::vector<std::vector<std::uint32_t>> key_lengths(parts.size());
    std::vector<Id> first_ids(parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const Segment& segment = *parts[p].segment;
        first_ids[p] = segment.ids.base();
        const bool wide = !segment.ids.wide().empty();
        writer.add<Id>(name(p, "ids"), wide ? span_of(segment.ids.wide()) : std::span(&first_ids[p], 1));
        writer.add<std::uint32_t>(name(p, "ids_above"), span_of(segment.ids.above()));
        writer.add<std::uint8_t>(name(p, "codes"), span_of(segment.codes));
        if (!segment.shared.empty()) writer.add<std::uint32_t>(name(p, "shared"), span_of(segment.shared.lists()));
        writer.add<std::uint8_t>(name(p, "embeddings"), span_of(segment.embeddings));
        for (const Table& table : segment.tables)
            key_lengths[p].push_back(static_cast<std::uint32_t>(table.key.length()));
        writer.add<std::uint32_t>(name(p, "key_bits"), key_lengths[p]);
        for (std::size_t j = 0; j < segment.tables.size(); ++j) {
            const Table& table = segment.tables[j];
            writer.add<std::uint32_t>(name(p, j, "offsets"), {table.offsets, table.n_offsets()});
            if (table.has_excerpts()) {
                const std::size_t n_bytes = segment.n_codes * table.excerpts.entry_bytes();
                writer.add<std::uint8_t>(name(p, j, "excerpts"), {table.excerpts.entries, n_bytes});
                continue;
            }
            if (j > 0) writer.add<std::uint8_t>(name(p, j, "codes"), {table.codes, segment.codes.size()});
            writer.add<std::uint32_t>(name(p, j, "rows"), {numbers_of(table.rows), segment.n_codes});
        }
        const auto& deleted = parts[p].deleted;
        writer.add<std::uint64_t>(name(p, "deleted"), deleted ? std::span(*deleted) : std::span<const std::uint64_t>());
    }
    writer.commit(path);
}

std::unique_ptr<MultiIndex> open_index(const std::filesystem::path& path, SnapshotFile::Access access,
                                       SnapshotFile::Check check, const CodeKernel& kernel) {
    const auto file = std::make_shared<const SnapshotFile>(SnapshotFile::open(path, kIndexKind, access, check));
    if (check != SnapshotFile::Check::all) file->verify("index");
    const auto fields = file->section<std::uint64_t>("index", kNumFields);
    const Layout cut{.n_bytes = fields[kNumBytes],
                     .n_tables = fields[kNumTables],
                     .is_planned = fields[kIsPlanned] == 1,
                     .radius = fields[kRadius]};
    if (fields[kIsPlanned] > (cut.n_tables ? 1u : 0u))
        file->reject("section 'index' says that there is a plan, by a number that means nothing");
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
        manifest.parts.push_back(PartReader(file, index->layout(), p, access, check).read());
    index->reset(std::move(manifest));
    return index;
}

}  // namespace hamtarget
