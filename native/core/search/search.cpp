#include "search.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "prober.hpp"
#include "searcher.hpp"

namespace hamtarget {

namespace {

// Tell whether a request is probed. A budget of all rows makes it a full search, unless rows are chosen by logits.
bool probes(const MultiIndex& index, const Manifest& manifest, const Request& request) {
    return request.logits && (request.budget < manifest.n_rows() || request.comparisons < kNoLimit ||
                              ranks_by_logits(index, request));
}

// Search for all queries, in at most `n_threads` threads. `make_searcher` gives each thread a searcher of its own.
template <class MakeSearcher>
Hits search_by(MakeSearcher make_searcher, std::size_t n_queries, std::size_t n_threads) {
    n_threads = std::clamp<std::size_t>(n_queries, 1, n_threads);
    if (n_threads == 1) {
        Hits hits;
        make_searcher()->run(0, n_queries, hits);
        return hits;
    }
    // More pieces than threads, so that all threads are busy to the end.
    const std::size_t n_pieces = std::min(n_queries, 8 * n_threads);
    std::vector<Hits> pieces(n_pieces);
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
        try {
            const auto searcher = make_searcher();
            for (std::size_t piece; (piece = next++) < n_pieces;)
                searcher->run(piece * n_queries / n_pieces, (piece + 1) * n_queries / n_pieces, pieces[piece]);
        } catch (...) {
            // The other threads take no further piece; limits stop them in the middle of one.
            next = n_pieces;
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

}  // namespace

Hits search(const MultiIndex& index, const Request& request, std::size_t n_threads) {
    const std::shared_ptr<const Manifest> manifest = index.manifest();
    const std::size_t n_queries = request.queries.n_rows;
    if (request.limits) request.limits->check();
    if (probes(index, *manifest, request))
        return search_by([&] { return std::make_unique<Prober>(index, *manifest, request); }, n_queries, n_threads);
    const StepCosts costs(index.layout(), *manifest, request.radius);
    return search_by([&] { return std::make_unique<Searcher>(index, *manifest, request, costs); }, n_queries,
                     n_threads);
}

}  // namespace hamtarget
