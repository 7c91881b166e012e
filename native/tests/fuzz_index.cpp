// Forged index files: each is refused, or can be searched, changed and saved without harm.
#include "../index_file.hpp"
#include "../search.hpp"
#include "fuzz.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;

// An index with segments that have tables, one that has none, deleted rows, and embeddings.
void write_index(const std::filesystem::path& path, std::size_t n_bytes, std::size_t n_tables, EmbeddingKind kind,
                 std::vector<std::size_t> batches) {
    MultiIndex index({n_bytes, n_tables, 0}, 2, kind, best_kernel());
    Random random(n_bytes);
    std::int64_t id = 0;
    for (const std::size_t count : batches) {
        Rows rows;
        rows.n_bytes = n_bytes;
        rows.width = kind.row_bytes();
        for (std::size_t i = 0; i < count; ++i)
            rows.push((id += 7) % 10'007, clustered_code(random, n_bytes), std::vector<std::uint8_t>(rows.width, 1));
        index.add(rows.view());
    }
    const auto ids = index.ids();
    index.erase(ids.data() + ids.size() / 2, ids.size() / 10);
    save_index(index, path);
}

// Whatever opens must be safe to index. Checked one by one, since reading past one section lands in the next, which no
// sanitizer can see.
void check_shape(const MultiIndex& index) {
    const Layout& layout = index.layout();
    CHECK(layout.n_bytes >= 1 && layout.n_bytes <= kMaxCodeBytes && layout.n_tables <= 8 * layout.n_bytes);
    CHECK(index.embedding().n_dims <= kMaxDims && index.radius() < 8 * layout.n_bytes);
    for (const Part& part : index.manifest()->parts) {
        const Segment& segment = *part.segment;
        const std::size_t n_rows = segment.n_rows, n_codes = n_rows * layout.n_bytes;
        CHECK(part.n_rows == n_rows && part.n_deleted <= n_rows);
        CHECK(!part.deleted || part.deleted->size() * 64 >= n_rows);
        CHECK(segment.codes.size() == n_codes);
        CHECK(segment.ids.wide().empty() || segment.ids.wide().size() == n_rows);
        CHECK(segment.ids.above().empty() || segment.ids.above().size() == n_rows);
        CHECK(segment.embeddings.size() == n_rows * layout.embedding_bytes);
        const auto places = segment.codes_by_row(layout.n_bytes).places;
        CHECK(places.size() == (segment.tables.empty() ? 0 : n_rows));
        for (std::size_t row = 0; row < places.size(); ++row) CHECK(places[row] < n_rows);
        for (std::size_t row = 1; row < n_rows; ++row) CHECK(segment.ids[row] > segment.ids[row - 1]);
        CHECK(segment.tables.empty() || segment.tables.size() == layout.n_tables);
        for (const Table& table : segment.tables) {
            CHECK(table.key.length() >= 1 && table.key.start() + table.key.length() <= 8 * layout.n_bytes);
            CHECK(table.offsets.size() == (std::size_t{1} << table.key.length()) + 1);
            CHECK(table.codes.size() == n_codes && table.rows.size() == n_rows);
            for (std::size_t b = 0; b + 1 < table.offsets.size(); ++b)
                CHECK(table.offsets[b] <= table.offsets[b + 1] && table.offsets[b + 1] <= n_rows);
            for (std::size_t place = 0; place < table.rows.size(); ++place) CHECK(table.rows[place] < n_rows);
        }
    }
}

// The searches, and every other call that reads the arrays of the file.
void use(const std::unique_ptr<MultiIndex>& index, Random& random) {
    check_shape(*index);
    const std::size_t n_bytes = index->layout().n_bytes, n_bits = 8 * n_bytes;
    const EmbeddingKind kind = index->embedding();
    constexpr std::size_t kQueries = 3;
    std::vector<std::uint8_t> queries;
    for (std::size_t q = 0; q < kQueries; ++q) {
        const auto code = clustered_code(random, n_bytes);
        queries.insert(queries.end(), code.begin(), code.end());
    }
    std::vector<float> embeddings(kQueries * kind.query_bytes() / 4 + 1, 0.5F);
    std::vector<float> logits(kQueries * n_bits, 0.5F);
    Request request;
    request.queries = {queries.data(), kQueries, n_bytes};
    for (const std::size_t radius : {std::size_t{0}, std::size_t{2}, std::size_t{5}, n_bits}) {
        request.radius = static_cast<Distance>(std::min(radius, n_bits));
        for (const std::size_t limit : {std::size_t{1}, std::size_t{50}, kNoLimit}) {
            request.limit = limit;
            search(*index, request, 1);
        }
        if (kind.n_dims) {
            Request ranked = request;
            ranked.rerank = 5;
            ranked.embeddings = reinterpret_cast<const std::uint8_t*>(embeddings.data());
            search(*index, ranked, 1);
        }
        Request probing = request;
        probing.logits = logits.data();
        probing.budget = 100;
        search(*index, probing, 1);
    }
    const auto ids = index->ids();
    std::vector<std::uint8_t> codes(ids.size() * n_bytes), rows(ids.size() * index->layout().embedding_bytes);
    for (const std::int64_t id : ids) CHECK(index->contains(id));
    index->get(ids.data(), ids.size(), codes.data(), rows.data());

    // What cannot be done (an id that is there twice) is refused; nothing worse happens.
    try {
        Rows more;
        more.n_bytes = n_bytes;
        more.width = index->layout().embedding_bytes;
        more.push(-5, std::vector<std::uint8_t>(n_bytes), std::vector<std::uint8_t>(more.width));
        index->add(more.view());
        if (!ids.empty()) index->erase(ids.data(), 1);
        index->compact();
    } catch (const InputError&) {
    }
    search(*index, request, 1);
}

// Forgeries that take several changes at once, which chance alone rarely makes.
void one_row_past_the_largest_id(const std::filesystem::path& path) {
    write_index(path, 1, 1, {}, {1});
    const Bytes whole = read_file(path);
    std::vector<Piece> pieces = parts_of(whole);
    for (Piece& piece : pieces) {
        const std::string_view name = format::text_of(piece.row.name);
        const std::int64_t largest = INT64_MAX;
        if (name == "0/ids") std::memcpy(piece.bytes.data(), &largest, sizeof largest);
        if (name == "0/ids_above") piece.bytes.assign(4, std::byte{5});
    }
    write_file(path, file_of(whole, pieces));
    Random random(1);
    try {
        use(open_index(path, true, best_kernel()), random);
    } catch (const CorruptFile&) {
    }
}

}  // namespace

int main(int n_arguments, char** arguments) {
    const Folder folder;
    const auto path = folder / "index";
    std::printf("fuzz_index: a failure leaves %s.mutated\n", path.c_str());
    std::fflush(stdout);
    one_row_past_the_largest_id(path);
    const std::size_t count = n_cases(n_arguments, arguments, 300);
    Tally tally;
    const struct {
        std::size_t n_bytes, n_tables;
        EmbeddingKind kind;
        std::vector<std::size_t> batches;
    } examples[] = {
        {8, 3, {}, {}},
        {1, 1, {}, {1}},
        {2, 2, {}, {20}},
        {8, 3, {}, {2100, 60}},
        {9, 2, {3, Element::kFloat32, Metric::kCosine}, {2100, 2, 300}},
        {16, 0, {5, Element::kInt8, Metric::kDot}, {300}},
        {8, 3, {7, Element::kFloat16, Metric::kEuclidean}, {6500, 2048, 40}},
    };
    std::uint64_t seed = 0;
    for (const auto& [n_bytes, n_tables, kind, batches] : examples) {
        write_index(path, n_bytes, n_tables, kind, batches);
        for (const bool mapped : {true, false})
            run_cases(
                path, count, ++seed, tally,
                [&](const auto& mutated) { return open_index(mutated, mapped, best_kernel()); }, use);
    }
    std::printf("fuzz_index: ok, %zu files opened, %zu refused; opening allocated at most %.2f times the file\n",
                tally.opened, tally.refused, tally.most_memory);
}
