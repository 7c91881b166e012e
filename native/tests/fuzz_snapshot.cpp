// Forged snapshot files: each is refused, or every section of it can be read to the end.
#include <numeric>

#include "fuzz.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;

template <class T>
std::size_t sum_of(std::span<const T> elements) {
    std::size_t sum = 0;
    for (const T element : elements) sum += static_cast<unsigned char>(element == T{});
    return sum;
}

void read_all(const SnapshotFile& file, Random&) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < file.n_sections(); ++i) {
        const std::string_view name = file.section_name(i);
        CHECK(file.has(name));
        // One of them is the type of the section; the others are refused.
        try {
            sum += sum_of(file.section<std::int64_t>(name));
        } catch (const CorruptFile&) {
        }
        try {
            sum += sum_of(file.section<std::uint8_t>(name));
        } catch (const CorruptFile&) {
        }
        try {
            sum += sum_of(file.section<float>(name));
        } catch (const CorruptFile&) {
        }
    }
    CHECK(sum <= file.n_bytes());
}

}  // namespace

int main() {
    const Folder folder;
    const auto path = folder / "example";
    std::printf("fuzz_snapshot: a failure leaves %s.mutated\n", path.c_str());
    std::fflush(stdout);
    const std::vector<std::int64_t> ids(300, 7);
    const std::vector<std::uint8_t> codes(1000, 3);
    const std::vector<float> weights(17, 0.5F);
    SnapshotWriter writer("example");
    writer.add<std::int64_t>("ids", ids);
    writer.add<std::uint8_t>("codes", codes);
    writer.add<float>("weights", weights);
    writer.commit(path);

    Tally tally;
    const std::size_t count = n_cases(20'000);
    for (const auto access : {SnapshotFile::Access::map, SnapshotFile::Access::read})
        for (const auto check : {SnapshotFile::Check::all, SnapshotFile::Check::bounds})
            run_cases(
                path, count / 4, 1, tally,
                [&](const auto& mutated) { return SnapshotFile::open(mutated, "example", access, check); }, read_all);
    std::printf("fuzz_snapshot: ok, %zu files opened, %zu refused\n", tally.opened, tally.refused);
}
