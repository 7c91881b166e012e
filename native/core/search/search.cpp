#include "search.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "filtering.hpp"
#include "prober.hpp"
#include "searcher.hpp"
#include "split_searcher.hpp"

namespace hamtarget {

namespace {

// Tell whether a request is probed. A budget of all rows makes it a full search, unless rows are chosen by logits.
bool probes(const MultiIndex& index, const Manifest& manifest, const Request& request) {
    return request.logits && (request.budget < manifest.n_rows() || request.comparisons < kNoLimit ||
                              ranks_by_logits(index, request));
}

// Search for the queries from `first` on, in at most `n_threads` threads, and append what is found. `make_searcher`
// gives each thread a searcher of its own.
template <class MakeSearcher>
void search_by(MakeSearcher make_searcher, const Request& request, std::size_t first, std::size_t n_threads,
               Hits& hits) {
    const std::size_t n_queries = request.queries.n_rows - first;
    n_threads = std::clamp<std::size_t>(n_queries, 1, n_threads);
    if (n_threads == 1) return make_searcher()->run(first, first + n_queries, hits);
    // More pieces than threads, so that all threads are busy to the end. This thread takes pieces from the first on and
    // writes its hits where they will stay; the others take pieces from the last on, and what they write one after another
    // is copied at the end.
    const std::size_t n_pieces = std::min(n_queries, 16 * n_threads);
    const auto start_of = [&](std::size_t piece) { return first + piece * n_queries / n_pieces; };
    std::vector<Hits::Piece> pieces(n_pieces);
    std::vector<Hits> found(n_threads - 1);
    std::size_t next = 0, end = n_pieces;
    std::exception_ptr failure;
    std::mutex mutex;
    // Call take(piece) for each piece that `choose` returns while there are some.
    const auto work = [&](auto choose, auto take) {
        try {
            const auto searcher = make_searcher();
            for (;;) {
                std::size_t piece;
                {
                    const std::lock_guard lock(mutex);
                    if (next == end) return;
                    piece = choose();
                }
                take(*searcher, piece);
            }
        } catch (...) {
            // The other threads take no further piece; limits stop them in the middle of one.
            const std::lock_guard lock(mutex);
            end = next;
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (Hits& own : found)
            threads.emplace_back([&] {
                work([&] { return --end; },
                     [&](auto& searcher, std::size_t piece) {
                         const std::size_t before = own.n_queries();
                         searcher.run(start_of(piece), start_of(piece + 1), own);
                         pieces[piece] = {&own, before, own.n_queries()};
                         if (before == 0) own.expect(n_queries / n_threads);
                     });
            });
        work([&] { return next++; },
             [&](auto& searcher, std::size_t piece) {
                 searcher.run(start_of(piece), start_of(piece + 1), hits);
                 if (piece == 0) hits.expect(first + n_queries - start_of(1));
             });
    }
    if (failure) std::rethrow_exception(failure);
    if (request.limits) request.limits->check();
    hits.append(std::span(pieces).subspan(end), n_threads);
}

// Search a manifest for the queries from `first` on, and append what is found.
void search_manifest(const MultiIndex& index, const Manifest& manifest, const Request& request, std::size_t first,
                     std::size_t n_threads, Hits& hits) {
    if (probes(index, manifest, request)) {
        const auto make = [&] { return std::make_unique<Prober>(index, manifest, request); };
        return search_by(make, request, first, n_threads, hits);
    }
    if (SplitSearcher::suits(manifest, request)) {
        const auto make = [&] { return std::make_unique<SplitSearcher>(index, manifest, request); };
        return search_by(make, request, first, n_threads, hits);
    }
    const SearchPlan plan(index.layout(), manifest, request);
    const auto make = [&] { return std::make_unique<Searcher>(index, manifest, request, plan); };
    search_by(make, request, first, n_threads, hits);
}

// A search with a filter. It costs about as much as one without: what the filter refuses is marked, or left out.
//
// Leaving rows out means to copy the others and to scan them for every query. This pays if queries read many rows more
// than the filter allows, which the first queries show: they are tried on the whole index.
class FilteredSearch {
  public:
    FilteredSearch(const MultiIndex& index, const Manifest& manifest, const Request& request, std::size_t n_threads)
        : index_(index), manifest_(manifest), request_(request), n_threads_(n_threads), work_(request.limits) {}

    Hits run() {
        // A mask is looked at as it is: marking its rows would take longer than a search for one code.
        if (request_.filter->is_list()) mark();
        if (n_allowed() > 0 && !probes(index_, manifest_, request_)) try_some();
        if (n_allowed() == 0)
            while (done() < n_queries()) hits_.end_query({});
        else
            search_manifest(index_, manifest_, request_, done(), n_threads_, hits_);
        return std::move(hits_);
    }

  private:
    // Copying a row, and marking it, take as long as scanning so many.
    static constexpr double kGatherCost = 20;
    // Looking a bucket up takes as long as scanning so many.
    static constexpr double kBucketRows = 500;
    static constexpr std::size_t kMostTried = 64;

    std::size_t n_queries() const { return request_.queries.n_rows; }
    std::size_t done() const { return hits_.n_queries(); }
    // Count the rows that may be hits: at most, while a filter has not been marked.
    std::size_t n_allowed() const { return manifest_.n_live(); }

    // Let rows that the filter refuses count as deleted, and forget the filter.
    void mark() {
        Manifest marked = refuse_others(manifest_, *request_.filter, work_);
        // A filter that allows everything is none.
        if (marked.n_live() < manifest_.n_live()) manifest_ = std::move(marked);
        request_.filter.reset();
    }

    // Search for the first queries, one by one and then more at a time, until it pays to gather what is allowed.
    void try_some() {
        const SearchPlan plan(index_.layout(), manifest_, request_);
        auto searcher = std::make_unique<Searcher>(index_, manifest_, request_, plan);
        for (std::size_t count = 1; done() < n_queries() && done() < kMostTried; count *= 2) {
            searcher->run(done(), std::min(done() + count, n_queries()), hits_);
            if (!pays(request_.filter ? 0 : n_allowed())) continue;
            if (request_.filter) {
                searcher.reset();
                mark();
                if (!pays(n_allowed())) return;
            }
            Layout layout = index_.layout();
            if (!request_.rerank) layout.embedding_bytes = 0;
            manifest_ = gather_live(layout, manifest_, work_);
            return;
        }
    }

    // Tell whether the queries that are left would read much more than `allowed` rows each.
    bool pays(std::size_t allowed) const {
        double spent = 0;
        for (std::size_t q = 0; q < done(); ++q)
            spent += kBucketRows * static_cast<double>(hits_.costs[3 * q]) + static_cast<double>(hits_.costs[3 * q + 1]);
        const double saved = spent / static_cast<double>(done()) - static_cast<double>(allowed);
        const double price = kGatherCost * static_cast<double>(manifest_.n_rows());
        return saved * static_cast<double>(n_queries() - done()) > price;
    }

    const MultiIndex& index_;
    Manifest manifest_;
    Request request_;
    const std::size_t n_threads_;
    Work work_;
    Hits hits_;
};

}  // namespace

Hits search(const MultiIndex& index, const Request& request, std::size_t n_threads) {
    const std::shared_ptr<const Manifest> manifest = index.manifest();
    if (request.limits) request.limits->check();
    if (request.filter) return FilteredSearch(index, *manifest, request, n_threads).run();
    Hits hits;
    search_manifest(index, *manifest, request, 0, n_threads, hits);
    return hits;
}

}  // namespace hamtarget
