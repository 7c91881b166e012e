// Snapshot files: a file that was written can be read, a damaged one is refused, a failed write leaves the old file.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <numeric>
#include <thread>

#include "check.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Access = SnapshotFile::Access;
using Check = SnapshotFile::Check;
using Until = format::PendingFile::Until;

constexpr Access kAccesses[] = {Access::map, Access::read};
constexpr Until kUntils[] = {Until::nameless, Until::named};

// Sections of lengths around the alignment, one empty, one in pieces.
void write_example(const std::filesystem::path& path, Until until = Until::nameless) {
    std::vector<std::uint8_t> bytes(65);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
    std::vector<std::int64_t> ids = {-1, 0, INT64_MAX, INT64_MIN};
    const std::vector<float> weights(16, 0.5F);
    SnapshotWriter writer("example");
    writer.add<std::uint8_t>("z/bytes", bytes);
    writer.add<std::int64_t>("ids", ids);
    writer.add<double>("nothing", {});
    writer.add<float>("weights", weights);
    writer.add_in_pieces<std::uint32_t>("numbers", 10, [](const auto& sink) {
        for (std::uint32_t i = 0; i < 10; i += 2) sink(std::vector{i, i + 1});
    });
    writer.commit(path, until);
}

void check_example(const SnapshotFile& file) {
    CHECK(file.kind() == "example" && file.n_sections() == 5);
    const auto ids = file.section<std::int64_t>("ids", 4);
    CHECK(ids[0] == -1 && ids[1] == 0 && ids[2] == INT64_MAX && ids[3] == INT64_MIN);
    const auto bytes = file.section<std::uint8_t>("z/bytes");
    CHECK(bytes.size() == 65 && bytes[0] == 1 && bytes[64] == 65);
    CHECK(file.section<double>("nothing").empty());
    const auto numbers = file.section<std::uint32_t>("numbers", 10);
    for (std::uint32_t i = 0; i < 10; ++i) CHECK(numbers[i] == i);
    CHECK(file.section<float>("weights", 16)[15] == 0.5F);
    for (const void* at : {static_cast<const void*>(ids.data()), static_cast<const void*>(bytes.data())})
        CHECK(reinterpret_cast<std::uintptr_t>(at) % 64 == 0);
    CHECK(file.has("ids") && !file.has("id") && !file.has("") && !file.has("zz"));
    CHECK(file.section_name(0) == "ids" && file.section_name(4) == "z/bytes");
}

void round_trip() {
    for (const Until until : kUntils)
        for (const Access access : kAccesses) {
            const Folder folder;
            write_example(folder / "a", until);
            write_example(folder / "a", until);
            CHECK(folder.n_files() == 1);
            SnapshotFile file = SnapshotFile::open(folder / "a", "example", access);
            check_example(file);
            // Moving keeps the memory, and a file may be replaced or removed while it is open.
            const auto* before = file.section<std::int64_t>("ids").data();
            SnapshotFile moved = std::move(file);
            CHECK(moved.section<std::int64_t>("ids").data() == before);
            write_example(folder / "a", until);
            std::filesystem::remove(folder / "a");
            check_example(moved);
            write_example(folder / "b", until);
            moved = SnapshotFile::open(folder / "b", "example", access);
            check_example(moved);
        }
}

void no_sections_and_large_pieces() {
    const Folder folder;
    SnapshotWriter("nothing").commit(folder / "a");
    CHECK(SnapshotFile::open(folder / "a", "nothing", Access::map).n_bytes() == 64);

    std::vector<std::uint16_t> large(400'001);
    std::iota(large.begin(), large.end(), std::uint16_t{0});
    SnapshotWriter writer("large");
    writer.add_in_pieces<std::uint16_t>("pieces", large.size(), [&](const auto& sink) {
        std::size_t at = 0;
        for (std::size_t count = 1; at < large.size(); at += count, count = std::min(count * 3, large.size() - at))
            sink(std::span(large).subspan(at, count));
    });
    writer.add<std::uint16_t>("whole", large);
    writer.commit(folder / "b");
    for (const Access access : kAccesses) {
        const SnapshotFile file = SnapshotFile::open(folder / "b", "large", access);
        for (const char* name : {"pieces", "whole"}) {
            const auto found = file.section<std::uint16_t>(name);
            CHECK(std::equal(found.begin(), found.end(), large.begin(), large.end()));
        }
    }
}

void wrong_use() {
    const Folder folder;
    CHECK_THROWS(std::invalid_argument, SnapshotWriter(""));
    CHECK_THROWS(std::invalid_argument, SnapshotWriter("seventeen letters"));
    SnapshotWriter writer("kind");
    CHECK_THROWS(std::invalid_argument, writer.add<float>("a b", {}));
    CHECK_THROWS(std::invalid_argument, writer.add<float>("123456789012345678901234567890123", {}));
    writer.add<float>("a", {});
    writer.add<int>("a", {});
    CHECK_THROWS(std::invalid_argument, writer.commit(folder / "a"));
    for (const std::size_t announced : {1, 3}) {
        SnapshotWriter wrong("kind");
        const std::vector<int> two = {1, 2};
        wrong.add_in_pieces<int>("a", announced, [&](const auto& sink) { sink(two); });
        for (const Until until : kUntils) CHECK_THROWS(std::logic_error, wrong.commit(folder / "a", until));
    }
    CHECK(folder.n_files() == 0);
}

void wrong_expectations() {
    const Folder folder;
    write_example(folder / "a");
    CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "a", "multi-index", Access::map));
    const SnapshotFile file = SnapshotFile::open(folder / "a", "example", Access::map);
    CHECK_THROWS(CorruptFile, file.section<std::uint64_t>("ids"));
    CHECK_THROWS(CorruptFile, file.section<std::int64_t>("id"));
    CHECK_THROWS(CorruptFile, file.section<std::int64_t>("ids", 5));
    CHECK_THROWS(CorruptFile, file.reject("for a reason"));
}

void no_such_file() {
    const Folder folder;
    for (const Access access : kAccesses) {
        try {
            SnapshotFile::open(folder / "a", "example", access);
            CHECK(false);
        } catch (const FileFailure& failure) {
            CHECK(failure.code == ENOENT);
        }
        CHECK_THROWS(FileFailure, SnapshotFile::open(folder / ".", "example", access));
        CHECK_THROWS(CorruptFile, SnapshotFile::open("/dev/null", "example", access));
        // A pipe without a writer: opening it must not wait for one.
        ::mkfifo((folder / "pipe").c_str(), 0600);
        CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "pipe", "example", access));
    }
}

void every_truncation() {
    const Folder folder;
    write_example(folder / "a");
    const Bytes whole = read_file(folder / "a");
    for (const Access access : kAccesses) {
        for (std::size_t length = 0; length < whole.size(); ++length) {
            write_file(folder / "b", std::span(whole).first(length));
            CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "b", "example", access));
            CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "b", "example", access, Check::bounds));
        }
        for (const std::size_t extra : {1, 63, 64, 4096}) {
            Bytes longer = whole;
            longer.resize(whole.size() + extra);
            write_file(folder / "b", longer);
            CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "b", "example", access));
        }
    }
}

void every_bit() {
    const Folder folder;
    write_example(folder / "a");
    Bytes bytes = read_file(folder / "a");
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        const auto flip = static_cast<std::byte>(1U << (bit % 8));
        bytes[bit / 8] ^= flip;
        write_file(folder / "b", bytes);
        CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "b", "example", kAccesses[bit % 2]));
        bytes[bit / 8] ^= flip;
    }
    write_file(folder / "b", bytes);
    check_example(SnapshotFile::open(folder / "b", "example", Access::map));
}

// Without verification, damage of header and table is still refused; damage of a section is found when it is verified.
void every_bit_without_verification() {
    const Folder folder;
    write_example(folder / "a");
    Bytes bytes = read_file(folder / "a");
    const std::size_t front = format::table_end(5);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        const auto flip = static_cast<std::byte>(1U << (bit % 8));
        bytes[bit / 8] ^= flip;
        write_file(folder / "b", bytes);
        if (bit / 8 < front) {
            CHECK_THROWS(CorruptFile, SnapshotFile::open(folder / "b", "example", kAccesses[bit % 2], Check::bounds));
        } else {
            const SnapshotFile file = SnapshotFile::open(folder / "b", "example", kAccesses[bit % 2], Check::bounds);
            std::size_t n_damaged = 0;
            for (std::size_t i = 0; i < file.n_sections(); ++i) {
                try {
                    file.verify(file.section_name(i));
                } catch (const CorruptFile&) {
                    ++n_damaged;
                }
            }
            CHECK(n_damaged == 1);
        }
        bytes[bit / 8] ^= flip;
    }
}

void set_element(format::Section& section, std::string_view element) {
    std::fill(std::begin(section.element), std::end(section.element), '\0');
    std::copy(element.begin(), element.end(), section.element);
}

// Each rule of the header and the table on its own, all checksums being right.
void forged_fields() {
    const Folder folder;
    write_example(folder / "a");
    const Bytes whole = read_file(folder / "a");
    const auto forged = [&](auto change) {
        Bytes bytes = whole;
        auto* header = reinterpret_cast<format::Header*>(bytes.data());
        auto* table = reinterpret_cast<format::Section*>(bytes.data() + sizeof *header);
        change(*header, table);
        repair_checksums(bytes);
        write_file(folder / "b", bytes);
        return SnapshotFile::open(folder / "b", "example", Access::map);
    };
    using Header = format::Header;
    using Table = format::Section*;
    check_example(forged([](Header&, Table) {}));
    CHECK_THROWS(UnsupportedFile, forged([](Header& header, Table) { header.version = 4; }));
    CHECK_THROWS(UnsupportedFile, forged([](Header& header, Table) { header.version = UINT32_MAX; }));
    CHECK_THROWS(UnsupportedFile, forged([](Header& header, Table) { header.version = 2; }));
    // Another version may give every other field another meaning.
    CHECK_THROWS(UnsupportedFile, forged([](Header& header, Table) { header.version = 4, header.n_bytes = 1; }));
    CHECK_THROWS(CorruptFile, forged([](Header& header, Table) { header.reserved = 1; }));
    CHECK_THROWS(CorruptFile, forged([](Header& header, Table) { header.kind[0] = '\0'; }));
    CHECK_THROWS(CorruptFile, forged([](Header& header, Table) { header.kind[15] = 'x'; }));
    CHECK_THROWS(CorruptFile, forged([](Header& header, Table) { header.n_bytes -= 64; }));
    for (const std::uint32_t n_sections : {0U, 4U, 6U, 65'536U, 65'537U, UINT32_MAX})
        CHECK_THROWS(CorruptFile, forged([&](Header& header, Table) { header.n_sections = n_sections; }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { std::swap(table[0], table[1]); }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { std::memcpy(table[1].name, table[0].name, 32); }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { table[0].name[31] = 'x'; }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { table[0].name[0] = '\n'; }));
    for (const char* element : {"", "u", "u3", "i0", "b1", "u16", "f\x7f"})
        CHECK_THROWS(CorruptFile,
                     forged([&](Header&, Table table) { set_element(table[0], element); }));
    // "i8" over 65 bytes: the last element would be cut.
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { table[4].element[1] = '8'; }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { table[1].offset += 64; }));
    CHECK_THROWS(CorruptFile, forged([](Header&, Table table) { table[1].offset = UINT64_MAX - 63; }));
    for (const std::uint64_t n_bytes : {std::uint64_t{31}, std::uint64_t{65}, std::uint64_t{1} << 40, UINT64_MAX,
                                        UINT64_MAX - 63})
        CHECK_THROWS(CorruptFile, forged([&](Header&, Table table) { table[0].n_bytes = n_bytes; }));
}

// The system ends the process for the first byte past the limit, unless the signal is ignored, as Python does.
void full_disk() {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before;
    ::getrlimit(RLIMIT_FSIZE, &before);
    for (const Until until : kUntils) {
        const Folder folder;
        write_example(folder / "a", until);
        const Bytes old = read_file(folder / "a");
        const std::vector<std::uint8_t> large(1 << 20);
        for (const rlim_t limit : {0, 100, 4096, 1'000'000}) {
            SnapshotWriter writer("example");
            writer.add<std::uint8_t>("large", large);
            const rlimit small = {limit, before.rlim_max};
            ::setrlimit(RLIMIT_FSIZE, &small);
            CHECK_THROWS(FileFailure, writer.commit(folder / "a", until));
            ::setrlimit(RLIMIT_FSIZE, &before);
            CHECK(folder.n_files() == 1);
            CHECK(read_file(folder / "a") == old);
        }
    }
}

void folder_in_the_way() {
    for (const Until until : kUntils) {
        const Folder folder;
        std::filesystem::create_directory(folder / "a");
        CHECK_THROWS(FileFailure, write_example(folder / "a", until));
        CHECK_THROWS(FileFailure, write_example(folder / "no/such/folder", until));
        CHECK(folder.n_files() == 1);
    }
}

void many_writers_of_one_file() {
    const Folder folder;
    write_example(folder / "a");
    std::vector<std::thread> threads;
    for (const Until until : kUntils)
        threads.emplace_back([&folder, until] {
            for (int i = 0; i < 20; ++i) write_example(folder / "a", until);
        });
    for (int i = 0; i < 200; ++i) check_example(SnapshotFile::open(folder / "a", "example", kAccesses[i % 2]));
    for (std::thread& thread : threads) thread.join();
    CHECK(folder.n_files() == 1);
}

}  // namespace

int main() {
    round_trip();
    no_sections_and_large_pieces();
    wrong_use();
    wrong_expectations();
    no_such_file();
    every_truncation();
    every_bit();
    every_bit_without_verification();
    forged_fields();
    full_disk();
    folder_in_the_way();
    many_writers_of_one_file();
    std::puts("snapshot: ok");
}
