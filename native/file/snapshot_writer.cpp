#include "snapshot_writer.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "checksum.hpp"

namespace hamtarget {

namespace {

// Small enough to be still in the cache when it is written, after its checksum was computed.
constexpr std::size_t kPieceBytes = 256 * 1024;

}  // namespace

SnapshotWriter::SnapshotWriter(std::string_view kind) {
    std::copy(std::begin(format::kMagic), std::end(format::kMagic), header_.magic);
    header_.version = format::kVersion;
    format::set_name(header_.kind, kind);
}

void SnapshotWriter::commit(const std::filesystem::path& path, format::PendingFile::Until until) {
    lay_out();
    format::PendingFile file(path, until);
    for (Part& part : parts_) write_part(file, part);

    // The front comes last: only now are the checksums known, and every section has been read only once.
    std::vector<format::Section> table;
    for (const Part& part : parts_) table.push_back(part.row);
    header_.table_checksum = checksum(std::as_bytes(std::span(table)));
    header_.checksum = format::header_checksum(header_);
    file.write(std::as_bytes(std::span(&header_, 1)), 0);
    file.write(std::as_bytes(std::span(table)), sizeof header_);
    file.publish();
}

void SnapshotWriter::lay_out() {
    if (parts_.size() > format::kMaxSections)
        throw std::invalid_argument("there are " + std::to_string(parts_.size()) + " sections; expected at most " +
                                    std::to_string(format::kMaxSections));
    const auto name = [](const Part& part) { return format::text_of(part.row.name); };
    std::ranges::sort(parts_, {}, name);
    const auto twice = std::ranges::adjacent_find(parts_, {}, name);
    if (twice != parts_.end())
        throw std::invalid_argument("there are two sections '" + std::string(name(*twice)) + "'");

    std::uint64_t end = format::table_end(parts_.size());
    for (Part& part : parts_) {
        part.row.offset = end;
        end += format::padded(part.row.n_bytes);
    }
    header_.n_sections = static_cast<std::uint32_t>(parts_.size());
    header_.n_bytes = end;
}

void SnapshotWriter::write_part(format::PendingFile& file, Part& part) {
    format::Section& row = part.row;
    Checksum sum;
    std::uint64_t n_written = 0;
    // Small pieces are gathered: a call of the system for each would take longer than all the rest.
    std::vector<std::byte> gathered;
    gathered.reserve(kPieceBytes);
    const auto write = [&](std::span<const std::byte> bytes) {
        sum.update(bytes);
        file.write(bytes, row.offset + n_written);
        n_written += bytes.size();
    };
    const auto flush = [&] {
        write(gathered);
        gathered.clear();
    };
    part.produce([&](std::span<const std::byte> bytes) {
        if (bytes.size() > row.n_bytes - n_written - gathered.size())
            throw std::logic_error("section '" + std::string(format::text_of(row.name)) +
                                   "' gets more elements than were announced");
        if (gathered.size() + bytes.size() > kPieceBytes) flush();
        while (bytes.size() >= kPieceBytes) {
            write(bytes.first(kPieceBytes));
            bytes = bytes.subspan(kPieceBytes);
        }
        gathered.insert(gathered.end(), bytes.begin(), bytes.end());
    });
    flush();
    if (n_written != row.n_bytes)
        throw std::logic_error("section '" + std::string(format::text_of(row.name)) + "' gets " +
                               std::to_string(n_written) + " bytes; " + std::to_string(row.n_bytes) +
                               " were announced");
    row.checksum = sum.value();
    const std::byte zeros[format::kAlignment] = {};
    file.write(std::span(zeros).first(format::padded(row.n_bytes) - row.n_bytes), row.offset + row.n_bytes);
}

}  // namespace hamtarget
