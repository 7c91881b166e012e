// Work in pieces, by several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace hamtarget {

// Call make_worker() once in each of at most `n_threads` threads, and its result with (first, last) of each piece of
// `count` elements. Throw what a worker throws.
template <class MakeWorker>
void in_threads(std::size_t count, std::size_t piece, std::size_t n_threads, MakeWorker make_worker) {
    const std::size_t n_pieces = (count + piece - 1) / piece;
    n_threads = std::clamp<std::size_t>(n_pieces, 1, std::max<std::size_t>(n_threads, 1));
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
        try {
            auto worker = make_worker();
            for (std::size_t i; (i = next++) < n_pieces;) worker(i * piece, std::min(count, (i + 1) * piece));
        } catch (...) {
            // The other threads take no further piece.
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
}

}  // namespace hamtarget
