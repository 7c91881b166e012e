// The index against a map that is read from end to end: adds, deletes, replacements, searches, files.
#include <cmath>
#include <cstdio>
#include <set>

#include "../core/errors.hpp"
#include "../core/search/search.hpp"
#include "../file/index_file.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Random = std::mt19937_64;
using Access = SnapshotFile::Access;
using Check = SnapshotFile::Check;
using Found = std::vector<std::pair<unsigned, std::int64_t>>;  // distance and id, in order

Found brute_force(const Model& model, const std::uint8_t* query, unsigned radius, std::size_t limit) {
    Found found;
    for (const auto& [id, row] : model)
        if (const unsigned away = distance_of(row.code, query); away <= radius) found.emplace_back(away, id);
    std::sort(found.begin(), found.end());
    if (found.size() > limit) found.resize(limit);
    return found;
}

Found found_by(const Hits& hits, std::size_t query) {
    Found found;
    for (std::int64_t i = hits.offsets[query]; i < hits.offsets[query + 1]; ++i)
        found.emplace_back(hits.distances[static_cast<std::size_t>(i)], hits.ids[static_cast<std::size_t>(i)]);
    return found;
}

std::vector<std::uint8_t> queries_for(Random& random, std::size_t count, std::size_t n_bytes) {
    std::vector<std::uint8_t> queries;
    for (std::size_t q = 0; q < count; ++q) {
        const auto code = clustered_code(random, n_bytes);
        queries.insert(queries.end(), code.begin(), code.end());
    }
    return queries;
}

void check_content(const MultiIndex& index, const Model& model) {
    std::vector<std::int64_t> ids;
    for (const auto& [id, row] : model) ids.push_back(id);
    CHECK(index.ids() == ids);
    CHECK(index.manifest()->n_live() == model.size());
    const std::size_t n_bytes = index.layout().n_bytes, width = index.layout().embedding_bytes;
    std::reverse(ids.begin(), ids.end());
    std::vector<std::uint8_t> codes(ids.size() * n_bytes), embeddings(ids.size() * width);
    index.get(ids.data(), ids.size(), codes.data(), embeddings.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const Row& row = model.at(ids[i]);
        CHECK(std::equal(row.code.begin(), row.code.end(), codes.begin() + static_cast<std::ptrdiff_t>(i * n_bytes)));
        CHECK(std::equal(row.embedding.begin(), row.embedding.end(),
                         embeddings.begin() + static_cast<std::ptrdiff_t>(i * width)));
        CHECK(index.contains(ids[i]));
    }
    CHECK(!index.contains(INT64_MIN));
}

// Elements of a mask; ids that are larger, or negative, are not allowed by it.
constexpr std::size_t kMaskSize = 20'000;

void check_searches(Random& random, const MultiIndex& index, const Model& model) {
    const std::size_t n_bytes = index.layout().n_bytes, n_bits = 8 * n_bytes;
    const std::size_t n_queries = 1 + random() % 40;
    const auto queries = queries_for(random, n_queries, n_bytes);
    Request request;
    request.queries = {queries.data(), n_queries, n_bytes};
    request.radius = static_cast<Distance>(random() % std::min<std::size_t>(n_bits, 12));
    const std::size_t n_threads = 1 + random() % 2;

    const Hits all = search(index, request, n_threads);
    for (std::size_t q = 0; q < n_queries; ++q)
        CHECK(found_by(all, q) == brute_force(model, request.queries.row(q), request.radius, kNoLimit));

    request.limit = 1 + random() % 20;
    const Hits first = search(index, request, n_threads);
    for (std::size_t q = 0; q < n_queries; ++q)
        CHECK(found_by(first, q) == brute_force(model, request.queries.row(q), request.radius, request.limit));

    // The nearest are the first within the widest radius.
    request.radius = static_cast<Distance>(n_bits);
    const Hits nearest = search(index, request, n_threads);
    for (std::size_t q = 0; q < n_queries; ++q)
        CHECK(found_by(nearest, q) == brute_force(model, request.queries.row(q), request.radius, request.limit));

    // With a budget of all rows, probing is exact; with less, it finds a part of that.
    std::vector<float> logits(n_queries * n_bits);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100 - 5;
    request.logits = logits.data();
    request.radius = static_cast<Distance>(random() % std::min<std::size_t>(n_bits, 12));
    request.limit = kNoLimit;
    for (const std::size_t budget : {std::size_t{1}, model.size() / 2, model.size() * 10 + 5000}) {
        request.budget = budget;
        const Hits probed = search(index, request, n_threads);
        for (std::size_t q = 0; q < n_queries; ++q) {
            const Found expected = brute_force(model, request.queries.row(q), request.radius, kNoLimit);
            const Found found = found_by(probed, q);
            CHECK(std::includes(expected.begin(), expected.end(), found.begin(), found.end()));
            if (budget > model.size() * 2 + 5000) CHECK(found == expected);
        }
    }
    if (index.embedding().n_dims == 0) {
        request.rerank = 1 + random() % 50;
        const Hits ranked = search(index, request, n_threads);
        for (std::size_t q = 0; q < n_queries; ++q) {
            const Found expected = brute_force(model, request.queries.row(q), request.radius, kNoLimit);
            Found found = found_by(ranked, q);
            std::sort(found.begin(), found.end());
            CHECK(found.size() == std::min(expected.size(), request.rerank));
            CHECK(std::includes(expected.begin(), expected.end(), found.begin(), found.end()));
        }
        request.rerank = 0;
    }
    request.logits = nullptr;

    // Filters that allow nothing, few, many or all of the ids, as a list and as a mask.
    for (const std::uint64_t share : {0, 1, 30, 100}) {
        std::vector<std::int64_t> allowed;
        std::unique_ptr<bool[]> mask(new bool[kMaskSize]());
        Model listed, masked;
        for (const auto& entry : model) {
            if (random() % 100 >= share) continue;
            allowed.push_back(entry.first), listed.insert(entry);
            if (entry.first >= 0 && entry.first < static_cast<std::int64_t>(kMaskSize))
                mask[static_cast<std::size_t>(entry.first)] = true, masked.insert(entry);
        }
        request.radius = static_cast<Distance>(random() % 2 ? n_bits : random() % std::min<std::size_t>(n_bits, 12));
        request.limit = random() % 2 ? kNoLimit : 3;
        for (const bool is_list : {true, false}) {
            request.filter = is_list ? Filter(allowed.data(), allowed.size()) : Filter(mask.get(), kMaskSize);
            const Hits filtered = search(index, request, n_threads);
            for (std::size_t q = 0; q < n_queries; ++q)
                CHECK(found_by(filtered, q) ==
                      brute_force(is_list ? listed : masked, request.queries.row(q), request.radius, request.limit));
        }
    }
}

void check_rerank(Random& random, const MultiIndex& index, const Model& model) {
    const EmbeddingKind kind = index.embedding();
    if (kind.n_dims == 0) return;
    const std::size_t n_bytes = index.layout().n_bytes;
    const auto query = queries_for(random, 1, n_bytes);
    std::vector<std::uint8_t> embedding(kind.query_bytes());
    if (kind.element == Element::kInt8) {
        for (auto& byte : embedding) byte = static_cast<std::uint8_t>(random());
    } else {
        for (std::size_t d = 0; d < kind.n_dims; ++d) {
            const float value = static_cast<float>(random() % 2001) / 1000 - 1;
            std::memcpy(embedding.data() + 4 * d, &value, 4);
        }
    }
    Request request;
    request.queries = {query.data(), 1, n_bytes};
    request.radius = static_cast<Distance>(random() % 10);
    request.rerank = 1 + random() % 5;
    request.embeddings = embedding.data();
    const Hits hits = search(index, request, 1);
    const Found within = brute_force(model, query.data(), request.radius, kNoLimit);
    CHECK(hits.ids.size() == std::min(within.size(), request.rerank));
    EmbeddingDistance distance(kind);
    distance.set_query(embedding.data());
    std::vector<std::pair<float, std::int64_t>> expected;
    for (const auto& [_, id] : within) {
        // Rows of the model are bytes anywhere in memory.
        std::vector<float> aligned((kind.row_bytes() + 3) / 4);
        std::memcpy(aligned.data(), model.at(id).embedding.data(), kind.row_bytes());
        const auto* row = reinterpret_cast<const std::uint8_t*>(aligned.data());
        float found;
        distance(&row, 1, &found);
        expected.emplace_back(found, id);
    }
    std::sort(expected.begin(), expected.end());
    for (std::size_t i = 0; i < hits.ids.size(); ++i) {
        CHECK(hits.ids[i] == expected[i].second);
        CHECK(hits.embedding_distances[i] == distance.reported(expected[i].first));
    }

    // With a budget of all rows, and as many comparisons, probing gives the same; with less, some of the hits.
    std::vector<float> logits(8 * n_bytes);
    for (std::size_t bit = 0; bit < logits.size(); ++bit) {
        const float size = static_cast<float>(random() % 1000) / 100;
        logits[bit] = query[bit / 8] >> (bit % 8) & 1 ? size : -size;
    }
    request.logits = logits.data();
    request.budget = model.size() * 10 + 5000;
    request.comparisons = model.size() + 1;
    const Hits same = search(index, request, 1);
    CHECK(same.ids.size() == hits.ids.size());
    for (std::size_t i = 0; i < hits.ids.size(); ++i) CHECK(same.ids[i] == hits.ids[i]);
    request.budget = 1 + model.size() / 2;
    request.comparisons = 1 + random() % 20;
    const Hits some = search(index, request, 1);
    CHECK(some.ids.size() <= std::min(request.comparisons, request.rerank));
    for (std::size_t i = 0; i < some.ids.size(); ++i) {
        const std::pair<unsigned, std::int64_t> hit(some.distances[i], some.ids[i]);
        CHECK(std::find(within.begin(), within.end(), hit) != within.end());
    }
}

Rows new_rows(Random& random, const MultiIndex& index, std::size_t count, std::set<std::int64_t>& used) {
    Rows rows;
    rows.n_bytes = index.layout().n_bytes;
    rows.width = index.layout().embedding_bytes;
    const EmbeddingKind kind = index.embedding();
    for (std::size_t i = 0; i < count; ++i) {
        std::int64_t id;
        do {
            id = static_cast<std::int64_t>(random() % 1'000'000) - 500'000;
        } while (!used.insert(id).second);
        std::vector<std::uint8_t> embedding(rows.width);
        for (std::size_t d = 0; d < kind.n_dims; ++d) {
            const float value = static_cast<float>(random() % 2001) / 1000 - 1;
            // 0x3C00 is 1 in float16; the fraction below it stays finite.
            const auto half = static_cast<std::uint16_t>(random() % 0x3C00);
            if (kind.element == Element::kFloat32) std::memcpy(embedding.data() + 4 * d, &value, 4);
            if (kind.element == Element::kFloat16) std::memcpy(embedding.data() + 2 * d, &half, 2);
            if (kind.element == Element::kInt8) embedding[d] = static_cast<std::uint8_t>(random());
        }
        rows.push(id, clustered_code(random, rows.n_bytes), embedding);
    }
    return rows;
}

void insert(Model& model, const Rows& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto code = rows.codes.begin() + static_cast<std::ptrdiff_t>(i * rows.n_bytes);
        const auto embedding = rows.embeddings.begin() + static_cast<std::ptrdiff_t>(i * rows.width);
        model[rows.ids[i]] = {{code, code + static_cast<std::ptrdiff_t>(rows.n_bytes)},
                              {embedding, embedding + static_cast<std::ptrdiff_t>(rows.width)}};
    }
}

std::vector<std::int64_t> some_ids(Random& random, const Model& model, std::size_t count) {
    std::vector<std::int64_t> ids;
    for (const auto& [id, row] : model) ids.push_back(id);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(std::min(count, ids.size()));
    return ids;
}

// Calls that fail leave the index as it was.
void check_refusals(MultiIndex& index, const Model& model, std::set<std::int64_t>& used, Random& random) {
    if (model.empty()) return;
    std::set<std::int64_t> fresh = used;
    Rows rows = new_rows(random, index, 3, fresh);
    rows.ids[2] = model.begin()->first;
    CHECK_THROWS(InputError, index.add(rows.view()));
    rows.ids[2] = rows.ids[0];
    CHECK_THROWS(InputError, index.add(rows.view()));
    CHECK_THROWS(InputError, index.replace(rows.view()));
    const std::int64_t unknown[] = {model.begin()->first, INT64_MAX};
    CHECK_THROWS(InputError, index.erase(unknown, 2));
    std::vector<std::uint8_t> codes(2 * rows.n_bytes), embeddings(2 * rows.width);
    CHECK_THROWS(InputError, index.get(unknown, 2, codes.data(), embeddings.data()));
}

void one_life(std::uint64_t seed, const CodeKernel& kernel) {
    Random random(seed);
    const std::size_t widths[] = {1, 2, 3, 4, 7, 8, 9, 16, 31, 32, 64, 128, 200, 512};
    const std::size_t n_bytes = widths[random() % std::size(widths)];
    const std::size_t n_tables = random() % 5 == 0 ? 0 : 1 + random() % std::min<std::size_t>(8 * n_bytes, 9);
    const EmbeddingKind kind = {random() % 2 ? 0 : 1 + random() % 40, static_cast<Element>(random() % 3),
                                static_cast<Metric>(random() % 3)};
    // Most indexes leave all merges to their thread, so that rows are deleted and replaced while they are merged.
    const MergePolicy policies[] = {{},
                                    {.writer_rows = 0, .young_share = 4, .most_parts = 5},
                                    {.writer_rows = 1000, .many_parts = 2, .young_share = 4, .most_parts = 6}};
    const std::size_t radius = random() % 2 ? random() % 4 : random() % (8 * n_bytes);
    const bool is_planned = n_tables && random() % 3 == 0;
    const std::size_t excerpt_bytes = random() % 2 ? 0 : 1 + random() % n_bytes;
    const Layout layout{n_bytes, n_tables, 0, is_planned, is_planned ? radius : 0, excerpt_bytes};
    auto index = std::make_unique<MultiIndex>(layout, radius, kind, kernel, policies[random() % std::size(policies)]);
    Model model;
    std::set<std::int64_t> used;
    const Folder folder;
    for (int step = 0; step < 14; ++step) {
        switch (random() % 8) {
            case 0:
            case 1:
            case 2: {
                const std::size_t counts[] = {0, 1, 10, 500, 2047, 2048, 2049, 5000};
                const Rows rows = new_rows(random, *index, counts[random() % std::size(counts)], used);
                index->add(rows.view());
                insert(model, rows);
                break;
            }
            case 3:
            case 4: {
                const std::size_t share = random() % 4;
                const auto ids = some_ids(random, model, share == 3 ? 5 : model.size() * share / 2);
                index->erase(ids.data(), ids.size());
                for (const std::int64_t id : ids) model.erase(id), used.erase(id);
                break;
            }
            case 5: {
                std::set<std::int64_t> fresh;
                const auto ids = some_ids(random, model, random() % 2 ? 3 : 3000);
                Rows rows = new_rows(random, *index, ids.size(), fresh);
                rows.ids = ids;
                index->replace(rows.view());
                insert(model, rows);
                break;
            }
            case 6: random() % 2 ? index->compact() : index->settle(); break;
            default:
                save_index(*index, folder / "index");
                index = open_index(folder / "index", random() % 2 ? Access::map : Access::read,
                                   random() % 2 ? Check::all : Check::bounds, kernel);
                CHECK(index->layout().n_bytes == n_bytes && index->layout().n_tables == n_tables);
                CHECK(index->layout().is_planned == is_planned && index->radius() == radius);
                CHECK(index->embedding() == kind);
        }
        check_refusals(*index, model, used, random);
        check_content(*index, model);
        check_searches(random, *index, model);
        check_rerank(random, *index, model);
    }
}

}  // namespace

int main(int n_arguments, char** arguments) {
    const auto kernels = supported_kernels();
    const std::uint64_t count = n_arguments > 1 ? std::strtoull(arguments[1], nullptr, 10) : 40;
    for (std::uint64_t seed = 0; seed < count; ++seed) one_life(seed, *kernels[seed % kernels.size()]);
    std::printf("index: ok, %llu lives\n", static_cast<unsigned long long>(count));
}
