// Searches of an index, in one thread or several.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hits.hpp"
#include "multi_index.hpp"
#include "request.hpp"
#include "searcher.hpp"

namespace hamtarget {

// Hits of every query, in at most `n_threads` threads.
inline Hits search(const MultiIndex& index, const Request& request, std::size_t n_threads) {
    const std::shared_ptr<const Manifest> manifest = index.manifest();
    const StepCosts costs(index.layout(), *manifest, request.radius);
    const std::size_t n_queries = request.queries.n_rows;
    n_threads = std::clamp<std::size_t>(n_queries, 1, n_threads);
    if (n_threads == 1) {
        Hits hits;
        std::make_unique<Searcher>(index, *manifest, request, costs)->run(0, n_queries, hits);
        return hits;
    }
    // More pieces than threads, so that all are busy to the end.
    const std::size_t n_pieces = std::min(n_queries, 8 * n_threads);
    std::vector<Hits> pieces(n_pieces);
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
        try {
            const auto searcher = std::make_unique<Searcher>(index, *manifest, request, costs);
            for (std::size_t piece; (piece = next++) < n_pieces;)
                searcher->run(piece * n_queries / n_pieces, (piece + 1) * n_queries / n_pieces, pieces[piece]);
        } catch (...) {
            const std::lock_guard lock(failure_mutex);
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
        work();
    }
    if (failure) std::rethrow_exception(failure);
    Hits hits;
    for (const Hits& piece : pieces) hits.append(piece);
    return hits;
}

}  // namespace hamtarget
