// Forged index files: each is refused, or can be searched, changed and saved without harm. This holds for files that
// are opened without verification, too, whose answers may be wrong.
#include "../core/errors.hpp"
#include "../core/search/search.hpp"
#include "../file/index_file.hpp"
#include "fuzz.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Access = SnapshotFile::Access;
using Check = SnapshotFile::Check;

// Write an index with segments that have tables, one that has none, deleted rows, and embeddings.
void write_index(const std::filesystem::path& path, const Layout& layout, EmbeddingKind kind,
                 std::vector<std::size_t> batches) {
    const std::size_t n_bytes = layout.n_bytes;
    MultiIndex index(layout, layout.is_planned ? layout.radius : 2, kind, best_kernel());
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

// Check that what was verified is safe to index. Every number is checked here, because reading past one section lands
// in the next one, which no sanitizer can see.
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
        for (std::size_t row = 1; row < n_rows; ++row)
            CHECK(segment.ids[row_number(row)] > segment.ids[row_number(row - 1)]);
        CHECK(segment.tables.empty() || segment.tables.size() == layout.n_tables || layout.is_planned);
        CHECK(segment.tables.size() <= 8 * layout.n_bytes);
        for (const Table& table : segment.tables) {
            CHECK(table.key.length() >= 1 && table.key.start() + table.key.length() <= 8 * layout.n_bytes);
            CHECK(table.n_rows == n_rows);
            for (std::size_t b = 0; b + 1 < table.n_offsets(); ++b)
                CHECK(table.offsets[b] <= table.offsets[b + 1] && table.offsets[b + 1] <= n_rows);
            for (std::size_t place = 0; place < n_rows; ++place) CHECK(raw(table.rows[place]) < n_rows);
            CHECK(table.excerpts.n_bytes <= layout.n_bytes && table.excerpts.first_byte < layout.n_bytes);
            for (std::size_t entry = 0; entry < n_rows && table.has_excerpts(); ++entry)
                CHECK(table.place_at(entry) < n_rows);
        }
    }
}

template <class T>
Array<const T> own_copy(const T* elements, std::size_t count) {
    Array<T> copy(count);
    if (count) std::memcpy(copy.data(), elements, count * sizeof(T));
    return copy;
}

// Give every array of an index memory of its own, exactly as long as it must be: then the sanitizer sees a read past
// its end, which in a file lands in the next section.
void move_to_heap(MultiIndex& index) {
    Manifest manifest = *index.manifest();
    const std::size_t n_bytes = index.layout().n_bytes;
    for (Part& part : manifest.parts) {
        const Segment& from = *part.segment;
        Segment to;
        to.n_rows = from.n_rows;
        to.is_verified = from.is_verified;
        to.codes = own_copy(from.codes.data(), from.codes.size());
        to.embeddings = own_copy(from.embeddings.data(), from.embeddings.size());
        to.ids = !from.ids.wide().empty()   ? IdColumn(own_copy(from.ids.wide().data(), from.n_rows))
                 : from.ids.above().empty() ? IdColumn(from.ids.base())
                                            : IdColumn(from.ids.base(), own_copy(from.ids.above().data(), from.n_rows));
        auto memory = std::make_shared<std::vector<std::shared_ptr<const void>>>();
        for (Table table : from.tables) {
            const auto offsets = own_copy(table.offsets, table.n_offsets());
            const auto codes = own_copy(table.codes, from.n_rows * n_bytes);
            const auto rows = own_copy(table.rows, from.n_rows);
            const auto entries = own_copy(table.excerpts.entries,
                                          table.has_excerpts() ? from.n_rows * table.excerpts.entry_bytes() : 0);
            memory->insert(memory->end(), {offsets.owner(), codes.owner(), rows.owner(), entries.owner()});
            table.offsets = offsets.data();
            table.excerpts.entries = entries.data();
            table.codes = codes.data();
            table.rows = rows.data();
            to.tables.push_back(table);
        }
        to.table_memory = memory;
        part.segment = std::make_shared<const Segment>(std::move(to));
    }
    index.reset(std::move(manifest));
}

// Make the searches, and every other call that reads the arrays of the file.
void use(const std::unique_ptr<MultiIndex>& index, Random& random, Check check) {
    const bool is_verified = check == Check::all;
    is_verified ? check_shape(*index) : move_to_heap(*index);
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
        probing.budget = 1'000'000;
        probing.rerank = 5;
        if (kind.n_dims) {
            probing.comparisons = 20;
            probing.embeddings = reinterpret_cast<const std::uint8_t*>(embeddings.data());
        }
        search(*index, probing, 1);
    }
    // So many queries that the rows which a filter allows are gathered.
    std::vector<std::uint8_t> more_queries;
    for (std::size_t q = 0; q < 64; ++q)
        more_queries.insert(more_queries.end(), queries.begin(), queries.begin() + static_cast<std::ptrdiff_t>(n_bytes));
    const std::vector<Id> few{-3, 0, 7, 14, 700, 1'000'000};
    const auto mask = std::make_unique<bool[]>(500);
    for (std::size_t i = 0; i < 500; i += 9) mask[i] = true;
    for (const Filter& filter : {Filter(few.data(), few.size()), Filter(mask.get(), 500)})
        for (const std::size_t rerank : {std::size_t{0}, kind.n_dims ? std::size_t{5} : 0}) {
            Request filtered;
            filtered.queries = {more_queries.data(), 64, n_bytes};
            filtered.radius = static_cast<Distance>(n_bits);
            filtered.limit = 3;
            filtered.filter = filter;
            filtered.rerank = rerank;
            const std::vector<float> vectors(64 * kind.query_bytes() / 4 + 1, 0.5F);
            filtered.embeddings = reinterpret_cast<const std::uint8_t*>(vectors.data());
            search(*index, filtered, 1);
        }
    const auto ids = index->ids();
    std::vector<std::uint8_t> codes(ids.size() * n_bytes), rows(ids.size() * index->layout().embedding_bytes);
    // Binary search may miss ids that do not ascend.
    for (const Id id : ids) CHECK(index->contains(id) || !is_verified);
    try {
        index->get(ids.data(), ids.size(), codes.data(), rows.data());
    } catch (const InputError&) {
        CHECK(!is_verified);
    }

    // Impossible changes (an id that is there twice) are refused; nothing worse happens.
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
    // A merge that goes on would hold memory, which is counted next.
    index->settle();
    search(*index, request, 1);
}

// Forgeries that take several changes at once, which chance alone rarely makes.
void one_row_past_the_largest_id(const std::filesystem::path& path) {
    write_index(path, {1, 1}, {}, {1});
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
        use(open_index(path, Access::map, Check::all, best_kernel()), random, Check::all);
    } catch (const CorruptFile&) {
    }
}

}  // namespace

int main() {
    const Folder folder;
    const auto path = folder / "index";
    std::printf("fuzz_index: a failure leaves %s.mutated\n", path.c_str());
    std::fflush(stdout);
    one_row_past_the_largest_id(path);
    const std::size_t count = n_cases(300);
    Tally tally;
    const struct {
        Layout layout;
        EmbeddingKind kind;
        std::vector<std::size_t> batches;
    } examples[] = {
        {{8, 3}, {}, {}},
        {{1, 1}, {}, {1}},
        {{2, 2}, {}, {20}},
        {{8, 3}, {}, {2100, 60}},
        {{9, 2}, {3, Element::kFloat32, Metric::kCosine}, {2100, 2, 300}},
        {{16, 0}, {5, Element::kInt8, Metric::kDot}, {300}},
        {{8, 3}, {7, Element::kFloat16, Metric::kEuclidean}, {6500, 2048, 40}},
        // Tables with excerpts, of a number that is given, and of one that is planned.
        {{16, 5, 0, false, 0, 6}, {}, {2100, 60}},
        {{32, 32, 0, true, 31}, {}, {2100, 30}},
    };
    std::uint64_t seed = 0;
    const auto kernels = supported_kernels();
    for (const auto& [layout, kind, batches] : examples) {
        write_index(path, layout, kind, batches);
        for (const auto& [access, check] : {std::pair(Access::map, Check::all), std::pair(Access::read, Check::all),
                                            std::pair(Access::map, Check::bounds)}) {
            const CodeKernel& kernel = *kernels[seed % kernels.size()];
            const Check checked = check;
            run_cases(
                path, count, ++seed, tally,
                [&](const auto& mutated) { return open_index(mutated, access, check, kernel); },
                [&](const std::unique_ptr<MultiIndex>& index, Random& random) { use(index, random, checked); });
        }
    }
    std::printf("fuzz_index: ok, %zu files opened, %zu refused; opening allocated at most %.2f times the file\n",
                tally.opened, tally.refused, tally.most_memory);
}
