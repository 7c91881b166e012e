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

// The searches, and every other call that reads the arrays of the file.
void use(const std::unique_ptr<MultiIndex>& index, Random& random) {
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

}  // namespace

int main(int n_arguments, char** arguments) {
    const Folder folder;
    const auto path = folder / "index";
    std::printf("fuzz_index: a failure leaves %s.mutated\n", path.c_str());
    std::fflush(stdout);
    const std::size_t count = n_cases(n_arguments, arguments, 300);
    Tally tally;
    const struct {
        std::size_t n_bytes, n_tables;
        EmbeddingKind kind;
        std::vector<std::size_t> batches;
    } examples[] = {
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
