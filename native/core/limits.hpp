// Bounds on the work of one request, shared by all threads that do it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace hamtarget {

// Work ended because it reached one of its limits.
struct LimitReached : std::runtime_error {
    LimitReached(const char* limit_, const std::string& text) : std::runtime_error(text), limit(limit_) {}

    const char* limit;  // "seconds", "rows", "hits", "bytes" or "cancelled"
};

// A deadline, and how much may be read and found. The clock starts when it is made. Any number of threads take from the
// same limits at the same time.
class Limits {
  public:
    static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max() / 2;
    // So much is as good as unbounded: nothing that is counted comes near.
    static constexpr std::uint64_t kLeastUnbounded = std::uint64_t{1} << 62;

    // Infinity stands for no deadline.
    Limits(double seconds, std::uint64_t rows, std::uint64_t hits, std::uint64_t bytes)
        : start_(Clock::now()),
          seconds_(seconds),
          rows_{"rows", "rows to read", rows},
          hits_{"hits", "hits", hits},
          bytes_{"bytes", "bytes to read", bytes} {}

    // The same limits, which must outlive these, but for hits: for searches whose hits are not those of the request, or
    // that are done again with fewer queries if they find more than `hits`.
    explicit Limits(Limits* all_but_hits, std::uint64_t hits = kUnlimited)
        : Limits(kForever, kUnlimited, hits, kUnlimited) {
        all_but_hits_ = all_but_hits;
    }

    Limits(const Limits&) = delete;
    Limits& operator=(const Limits&) = delete;

    static constexpr double kForever = std::numeric_limits<double>::infinity();

    // Let all work under these limits end soon.
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

    double seconds_left() const {
        if (all_but_hits_) return all_but_hits_->seconds_left();
        return seconds_ - std::chrono::duration<double>(Clock::now() - start_).count();
    }

    // Throw LimitReached if the time is over, or the work was cancelled.
    void check() const {
        if (all_but_hits_) all_but_hits_->check();
        if (is_cancelled()) throw LimitReached("cancelled", "the work was cancelled before it was done");
        if (seconds_ < kForever && seconds_left() <= 0)
            throw LimitReached("seconds", "the work was not done after " + in_words(seconds_) +
                                              " seconds; ask for less, or allow more seconds");
    }

    // Tell whether the rows that are read are bounded, so that they must be counted.
    bool bounds_rows() const {
        return rows_.most < kLeastUnbounded || (all_but_hits_ && all_but_hits_->bounds_rows());
    }

    // Count what was, or is about to be, read or found. Throw LimitReached if it is more than allowed.
    void take(std::uint64_t rows, std::uint64_t hits, std::uint64_t bytes = 0) {
        rows_.take(rows);
        // All else first: it may stop the work for good.
        if (all_but_hits_) all_but_hits_->take(rows, 0, bytes);
        hits_.take(hits);
        bytes_.take(bytes);
    }

    // Forget what a search has taken whose hits are thrown away: it is done again.
    void give_back(std::uint64_t rows, std::uint64_t hits) {
        if (all_but_hits_) all_but_hits_->give_back(rows, 0);
        rows_.taken.fetch_sub(rows);
        hits_.taken.fetch_sub(hits);
    }
    // Forget all rows that were taken.
    void give_back_rows() { give_back(rows_.taken.load(), 0); }

  private:
    using Clock = std::chrono::steady_clock;

    struct Counter {
        const char* limit;
        const char* noun;
        std::uint64_t most;
        std::atomic<std::uint64_t> taken{0};

        // Taking nothing throws as well if too much has been taken before: so all threads of a search end soon.
        void take(std::uint64_t count) {
            const std::uint64_t before = count ? taken.fetch_add(count) : taken.load(std::memory_order_relaxed);
            // A caller may count as much as it likes; the sum must not begin again at 0.
            if (before > kUnlimited || count > kUnlimited) taken.store(kUnlimited);
            if (before > most || count > most - before)
                throw LimitReached(limit, "the work needs more than " + std::to_string(most) + " " + noun +
                                              "; ask for less, or allow more " + limit);
        }
    };

    static std::string in_words(double seconds) {
        std::string text = std::to_string(seconds);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text;
    }

    const Clock::time_point start_;
    const double seconds_;
    std::atomic<bool> cancelled_{false};
    Counter rows_, hits_, bytes_;
    Limits* all_but_hits_ = nullptr;
};

// The work of one thread under the limits of a request, if it has any. It is counted here first, and with the limits
// every few thousand rows: several threads would be in each other's way otherwise.
class Work {
  public:
    explicit Work(Limits* limits) : limits_(limits) {}

    // Count rows that are about to be read.
    void read_rows(std::size_t count) {
        if (limits_) add(count, 0, count);
    }
    // Count hits.
    void find_hits(std::size_t count) {
        if (limits_) add(0, count, count);
    }
    // Count other work, in about the time that reading a row takes in a scan.
    void spend(std::size_t steps) {
        if (limits_) add(0, 0, steps);
    }

    // Tell the limits what was counted. Throw LimitReached if that is too much, or the time is over.
    void settle() {
        if (limits_) tell();
    }

    // Call on_block(first, last) for all of `count` elements: at once if they are few or nothing is limited, else in
    // blocks that take well below a millisecond.
    template <class OnBlock>
    void in_blocks(std::size_t count, OnBlock on_block) {
        if (is_quick(count)) return on_block(std::size_t{0}, count);
        constexpr std::size_t kBlock = 16 * kStepsBetweenChecks;
        for (std::size_t first = 0; first < count; first += kBlock) {
            settle();
            on_block(first, std::min(first + kBlock, count));
        }
    }

    // Call sort(order) for `count` elements. If they are many, the order ends the sorting when a limit is reached.
    template <class Order, class Sort>
    void in_order(std::size_t count, const Order& order, Sort sort) {
        if (is_quick(count)) return sort(order);
        sort([&](const auto& left, const auto& right) {
            spend(1);
            return order(left, right);
        });
    }

    bool is_limited() const { return limits_ != nullptr; }

  private:
    // Tell whether so few elements need no check of their own; they are counted.
    bool is_quick(std::size_t count) {
        if (!limits_) return true;
        if (count > kStepsBetweenChecks) return false;
        spend(count);
        return true;
    }

    void add(std::size_t rows, std::size_t hits, std::size_t steps) {
        rows_ += rows;
        hits_ += hits;
        if ((steps_ += steps) >= kStepsBetweenChecks) tell();
    }

    // Apart from the loops of a search, which are to stay short.
    [[gnu::noinline, gnu::cold]] void tell() {
        steps_ = 0;
        const std::size_t rows = rows_, hits = hits_;
        rows_ = hits_ = 0;
        limits_->take(rows, hits);
        limits_->check();
    }

    // About 2 microseconds. Looking at the clock takes a fiftieth of it.
    static constexpr std::size_t kStepsBetweenChecks = 8192;

    Limits* limits_;
    std::size_t steps_ = 0, rows_ = 0, hits_ = 0;
};

}  // namespace hamtarget
