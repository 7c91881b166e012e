// Several threads search an index of vectors, in several threads each, while another one changes it.
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "../core/neighbors/neighbor_core.hpp"
#include "../core/neighbors/neighbor_search.hpp"
#include "check.hpp"

namespace {

using namespace hamtarget;

constexpr std::size_t kDims = 16, kPartDims = 4, kParts = 4, kCells = 8, kBatch = 300;

Array<const float> floats(std::mt19937_64& random, std::size_t count) {
    Array<float> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = std::normal_distribution<float>()(random);
    return result;
}

}  // namespace

int main() {
    std::mt19937_64 random(3);
    NeighborCore core(kDims, neighbor_metric("l2"), RowType::kInt8, floats(random, kCells * kDims),
                      floats(random, kParts * kPartEntries * kPartDims), kPartDims, {});
    const Array<const float> rows = floats(random, kBatch * kDims);
    std::int64_t next = 0;
    const auto add = [&] {
        std::vector<std::int64_t> ids(kBatch);
        for (auto& id : ids) id = next++;
        core.add(ids.data(), kBatch, {.floats = rows.data()}, 2);
    };
    add();
    std::atomic<bool> is_done = false;
    {
        std::vector<std::jthread> searchers;
        for (int i = 0; i < 3; ++i)
            searchers.emplace_back([&] {
                do {
                    Limits limits(60, Limits::kUnlimited, Limits::kUnlimited, Limits::kUnlimited);
                    const Neighbors found = search(core, {.queries = rows.data(), .n_queries = 150, .k = 3,
                                                          .budget = 200, .comparisons = 20, .limits = &limits}, 2);
                    for (std::size_t q = 0; q < 150; ++q) CHECK(found.ids[3 * q] >= 0);
                } while (!is_done);
            });
        for (int i = 0; i < 12; ++i) {
            add();
            std::vector<std::int64_t> gone;
            for (std::int64_t id = i * 100; id < i * 100 + 60; ++id) gone.push_back(id);
            CHECK(core.remove(gone.data(), gone.size()) == 60);
        }
        is_done = true;
    }
    CHECK(core.size() == 13 * kBatch - 12 * 60);
    std::puts("neighbors in threads: ok");
}
