// Searches within a budget of rows read: the most likely buckets of all tables, by the query's logits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "../../kernels/code_kernel.hpp"
#include "../asymmetric.hpp"
#include "../hits.hpp"
#include "../manifest.hpp"
#include "../multi_index.hpp"
#include "flip_sets.hpp"
#include "request.hpp"
#include "rerank.hpp"
#include "row_set.hpp"
#include "smallest.hpp"

namespace hamtarget {

// Tell whether hits are ranked by the query's logits, because there are no embeddings.
inline bool ranks_by_logits(const MultiIndex& index, const Request& request) {
    return request.logits && request.rerank && index.embedding().n_dims == 0;
}

// Probes for some of the queries of a request. Each thread has its own.
class Prober {
  public:
    Prober(const MultiIndex& index, const Manifest& manifest, const Request& request)
        : layout_(index.layout()),
          kernel_(index.kernel()),
          manifest_(manifest),
          request_(request),
          order_(manifest),
          ranks_(ranks_by_logits(index, request)),
          chooses_(ranks_ || request.comparisons < kNoLimit),
          n_rows_(manifest.n_rows()),
          work_(request.limits),
          reranker_(manifest, request, index.embedding(), work_) {
        flip_costs_.resize(8 * layout_.n_bytes);
    }

    void run(std::size_t first, std::size_t last, Hits& hits) {
        constexpr std::size_t kExpected = 256;
        for (std::size_t query = first; query < last; ++query) {
            begin(query);
            read_scanned_parts();
            if (left_) read_tables();
            finish(hits);
            if (query - first == kExpected) hits.expect(last - query);
        }
        work_.settle();
    }

  private:
    struct ProbedTable {
        std::size_t part;
        const Table* table;
        BucketNumber own;  // the query's bucket
        FlipSets sets;
        std::size_t n_listed;  // sets of the rounds before
    };

    struct Bucket {
        FlipSet set;
        std::uint32_t table;
        Span span;

        // An empty bucket counts as a row, so that a budget bounds the time as well.
        std::size_t price() const { return std::max<std::size_t>(1, span.size()); }

        friend bool operator<(const Bucket& left, const Bucket& right) {
            if (cost_of(left.set) != cost_of(right.set)) return left.set < right.set;
            return left.table != right.table ? left.table < right.table : left.set < right.set;
        }
    };

    void begin(std::size_t query) {
        query_ = query;
        code_ = request_.queries.row(query);
        left_ = request_.budget;
        cost_ = {};
        n_found_ = 0;
        const float* logits = request_.logits + query * 8 * layout_.n_bytes;
        flip_costs(logits, 8 * layout_.n_bytes, flip_costs_.data());
        if (chooses_) asymmetric_.set_query(logits, code_, layout_.n_bytes);
    }

    // Read the parts without tables, or all parts if the budget is enough.
    void read_scanned_parts() {
        const bool all = request_.budget >= n_rows_;
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            const Part& part = manifest_.parts[p];
            const auto& tables = part.segment->tables;
            if (!all && !tables.empty()) continue;
            const std::size_t count = std::min(left_, part.n_codes());
            left_ -= count;
            for (std::size_t start = 0; start < count; start += kBlockRows) {
                const std::size_t rows = std::min(kBlockRows, count - start);
                if (tables.empty()) number_rows(start, rows);
                planned_.push_back({part.segment->codes.data() + start * layout_.n_bytes,
                                    tables.empty() ? numbers_.data() : tables[0].rows + start,
                                    static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(p)});
                read_planned();
            }
        }
        if (all) left_ = 0;
    }

    // Write the numbers of rows that lie in the order of their numbers.
    void number_rows(std::size_t start, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) numbers_[i] = row_number(start + i);
    }

    // Read all buckets within a cost, then those up to a higher one, until the budget is spent.
    void read_tables() {
        const FlipCost highest = set_tables();
        if (n_tables_ == 0) return;
        // Neighbouring queries end at a similar cost. A good guess saves time and changes no result.
        auto limit = static_cast<FlipCost>(std::min<double>(guess_ * mean_cost_, highest));
        for (FlipCost first = 0; left_ && first <= highest;) {
            limit = std::clamp(limit, first, highest);
            const std::size_t price = list_buckets(first, limit);
            guess_ = 1.05 * limit / mean_cost_;
            if (price > left_) {
                read_until_spent(first, limit);
                return;
            }
            read_buckets();
            left_ -= price;
            first = limit + 1;
            // The number of sets grows faster than their cost.
            const std::size_t spent = request_.budget - left_ + 1;
            const double factor = request_.budget / spent > 8 ? 1.5 : request_.budget / spent > 2 ? 1.25 : 1.1;
            limit = static_cast<FlipCost>(limit * factor) + 1;
        }
    }

    // List the tables and what flipping bits of their bucket numbers costs. Return the highest cost of a set.
    FlipCost set_tables() {
        FlipCost highest = 0;
        std::size_t count = 0;
        mean_cost_ = 0;
        for (std::size_t p = 0; p < manifest_.parts.size(); ++p) {
            const auto& tables = manifest_.parts[p].segment->tables;
            // Further tables, or more flips, would find no row within the radius that these do not (searcher.hpp).
            const std::size_t reachable = std::min(tables.size(), std::size_t{request_.radius} + 1);
            for (std::size_t j = 0; j < reachable; ++j, ++count) {
                const KeyBits& key = tables[j].key;
                // Several bits of a code flip the same bit of the bucket number: the cheapest of them counts.
                FlipCost costs[kMaxKeyBits];
                std::fill_n(costs, key.length(), kMostFlipCost);
                for (std::size_t b = 0; b < key.width(); ++b)
                    costs[b % key.length()] = std::min(costs[b % key.length()], flip_costs_[key.start() + b]);
                if (tables_.size() <= count) tables_.resize(count + 1);
                ProbedTable& table = tables_[count];
                table.part = p;
                table.table = &tables[j];
                table.n_listed = 0;
                table.own = key.bucket_of(code_);
                table.sets.reset(costs, key.length(), (request_.radius - j) / tables.size());
                highest = std::max(highest, table.sets.highest());
                mean_cost_ += static_cast<double>(table.sets.highest()) / static_cast<double>(key.length());
            }
        }
        n_tables_ = count;
        n_sets_.resize(count);
        mean_cost_ /= static_cast<double>(std::max<std::size_t>(1, count));
        return highest;
    }

    // List the buckets that cost from `first` to `limit`, in no order. `limit` comes down if they would be far more
    // than the budget can take. Return how much of the budget they take.
    std::size_t list_buckets(FlipCost first, FlipCost& limit) {
        constexpr std::size_t kSlack = 1024;
        for (;; limit = first + (limit - first) / 2) {
            // Sets of one cost cannot be divided.
            const std::size_t most = limit == first ? kNoLimit / 2 : left_ + kSlack;
            std::size_t price = 0;
            buckets_.clear();
            bool complete = true;
            for (std::size_t t = 0; t < n_tables_ && complete; ++t) {
                n_sets_[t] = tables_[t].sets.within(limit, tables_[t].n_listed + most, sets_, work_);
                complete = n_sets_[t] > 0;
                price += look_up(t, first, n_sets_[t]);
            }
            if (!complete) continue;
            for (std::size_t t = 0; t < n_tables_; ++t) tables_[t].n_listed = n_sets_[t];
            return price;
        }
    }

    std::span<const Bucket> listed() const { return {buckets_.data(), buckets_.size()}; }

    // Add the buckets of a table that cost at least `first`, of the sets just listed. Return what they take.
    std::size_t look_up(std::size_t t, FlipCost first, std::size_t count) {
        const BucketNumber own = tables_[t].own;
        const Table& table = *tables_[t].table;
        const std::size_t before = buckets_.size();
        buckets_.extend(count);
        std::size_t kept = before, price = 0;
        work_.in_blocks(count, [&](std::size_t from, std::size_t to) {
            for (std::size_t i = from; i < to; ++i)
                __builtin_prefetch(table.offsets + raw(flipped(own, flipped_bits(sets_[i]))));
            for (std::size_t i = from; i < to; ++i) {
                if (cost_of(sets_[i]) < first) continue;
                const Span span = table.bucket(flipped(own, flipped_bits(sets_[i])));
                const Bucket bucket{sets_[i], static_cast<std::uint32_t>(t), span};
                buckets_[kept++] = bucket;
                price += bucket.price();
            }
        });
        buckets_.shrink(kept);
        return price;
    }

    // Read the cheapest of the buckets that were listed, by (cost, table, bits flipped), and of the last one only as
    // many rows as the budget allows, those that lie first in the table. Buckets are counted by cost, so that only those of about the last cost are
    // sorted.
    void read_until_spent(FlipCost first, FlipCost limit) {
        constexpr int kBinBits = 8;
        const int shift = std::max(0, static_cast<int>(std::bit_width(limit - first)) - kBinBits);
        std::array<std::size_t, std::size_t{1} << kBinBits> prices{};
        const auto bin_of = [&](const Bucket& bucket) { return (cost_of(bucket.set) - first) >> shift; };
        for (const Bucket& bucket : listed()) prices[bin_of(bucket)] += bucket.price();
        std::size_t last = 0;
        for (; prices[last] <= left_; ++last) left_ -= prices[last];
        // A CPU cannot foresee which of them are cheaper, so they are told apart without a branch.
        last_buckets_.resize(buckets_.size());
        std::size_t n_cheaper = 0, n_last = 0;
        for (const Bucket& bucket : listed()) {
            const std::size_t bin = bin_of(bucket);
            last_buckets_[n_last] = bucket;
            n_last += bin == last;
            buckets_[n_cheaper] = bucket;
            n_cheaper += bin < last;
        }
        last_buckets_.resize(n_last);
        work_.in_order(n_last, std::less<Bucket>(), [&](const auto& less) {
            std::sort(last_buckets_.begin(), last_buckets_.end(), less);
        });
        for (Bucket& bucket : last_buckets_) {
            if (left_ == 0) break;
            bucket.span.stop =
                static_cast<std::uint32_t>(std::min<std::size_t>(bucket.span.stop, bucket.span.start + left_));
            left_ -= bucket.price();
            buckets_[n_cheaper++] = bucket;
        }
        buckets_.shrink(n_cheaper);
        guess_ = 1.05 * (first + (static_cast<double>(last + 1) * (1 << shift))) / mean_cost_;
        read_buckets();
    }

    void read_buckets() {
        cost_.buckets += static_cast<std::int64_t>(buckets_.size());
        planned_.resize(buckets_.size());
        std::size_t count = 0;
        for (const Bucket& bucket : listed()) {
            const ProbedTable& from = tables_[bucket.table];
            if (from.table->has_excerpts()) {
                by_excerpts_.push_back(bucket);
                continue;
            }
            planned_[count] = {from.table->codes + std::size_t{bucket.span.start} * layout_.n_bytes,
                               from.table->rows + bucket.span.start,
                               static_cast<std::uint32_t>(bucket.span.size()), static_cast<std::uint32_t>(from.part)};
            count += bucket.span.size() > 0;
        }
        planned_.resize(count);
        for (const Bucket& bucket : by_excerpts_) plan_places(bucket);
        by_excerpts_.clear();
        read_planned();
    }

    // Plan to read the codes that a bucket of excerpts names, one by one: they lie all over the first table.
    void plan_places(const Bucket& bucket) {
        const ProbedTable& from = tables_[bucket.table];
        const Table& table = *from.table;
        for (std::size_t i = bucket.span.start; i < bucket.span.stop; ++i) {
            const std::size_t place = table.place_at(i);
            planned_.push_back({table.codes + place * layout_.n_bytes, table.rows + place, 1,
                                static_cast<std::uint32_t>(from.part)});
        }
    }

    void read_planned() {
        std::size_t rows = 0;
        bool all_allowed = !request_.filter, any_shared = false;
        for (const RowRun& run : planned_) {
            const Part& part = manifest_.parts[run.part];
            rows += run.count;
            all_allowed &= !part.deleted;
            any_shared |= !part.segment->shared.empty();
        }
        cost_.candidates += static_cast<std::int64_t>(rows);
        work_.read_rows(rows);
        const std::size_t before = n_found_, most = before + rows + kKernelSlack;
        if (found_.size() < most) found_.extend(most - found_.size());
        if (chooses_ && distances_.size() < most) distances_.extend(most - distances_.size());
        const RowFilter filter{code_, layout_.n_bytes, request_.radius, chooses_ ? &asymmetric_.tables() : nullptr};
        for (std::size_t first = 0, last = 0; first < planned_.size(); first = last) {
            last = work_.is_limited() ? end_of_block(first) : planned_.size();
            n_found_ += kernel_.filter_rows(filter, planned_.data() + first, last - first, kernel_room_,
                                            found_.data() + n_found_, distances_.data() + n_found_);
            work_.settle();
        }
        if (any_shared) take_rows(before);
        planned_.clear();
        if (!all_allowed) keep_allowed(before);
    }

    // Put the rows of each code in the place of the code, from hit `first` on.
    void take_rows(std::size_t first) {
        by_code_.assign(found_.data() + first, found_.data() + n_found_);
        if (chooses_) distances_by_code_.assign(distances_.data() + first, distances_.data() + n_found_);
        n_found_ = first;
        for (std::size_t i = 0; i < by_code_.size(); ++i) {
            const std::size_t part = part_of(by_code_[i]);
            const auto take = [&](RowNumber row) {
                if (found_.size() <= n_found_) found_.extend(std::max<std::size_t>(n_found_, kBlockRows));
                found_[n_found_] = hit_of(distance_of(by_code_[i]), part, row);
                if (chooses_) {
                    if (distances_.size() <= n_found_) distances_.extend(std::max<std::size_t>(n_found_, kBlockRows));
                    distances_[n_found_] = distances_by_code_[i];
                }
                ++n_found_;
            };
            work_.spend(1);
            manifest_.parts[part].segment->each_row(row_of(by_code_[i]), take);
        }
    }

    // Return where a block of planned runs ends that begins with `first`: it is read in well below a millisecond.
    std::size_t end_of_block(std::size_t first) const {
        std::size_t last = first;
        for (std::size_t rows = 0; last < planned_.size() && rows < kBlockRows; ++last) rows += planned_[last].count + 64;
        return last;
    }

    // Keep the hits from `first` on that are neither deleted nor filtered out.
    void keep_allowed(std::size_t first) {
        std::size_t kept = first;
        for (std::size_t i = first; i < n_found_; ++i) {
            const Part& part = manifest_.parts[part_of(found_[i])];
            const RowNumber row = row_of(found_[i]);
            if (part.is_deleted(row)) continue;
            if (request_.filter && !request_.filter->allows(part.segment->ids[row])) continue;
            found_[kept] = found_[i];
            if (chooses_) distances_[kept] = distances_[i];
            ++kept;
        }
        n_found_ = kept;
    }

    void finish(Hits& hits) {
        found_.shrink(n_found_);
        chooses_ ? keep_nearest(ranks_ ? request_.rerank : request_.comparisons) : keep_different();
        work_.find_hits(std::min(ranks_ ? nearest_.size() : found_.size(), request_.limit));
        if (ranks_) return finish_ranked(hits);
        if (found_.size() > request_.limit) {
            work_.in_order(found_.size(), order_, [&](const auto& less) {
                std::nth_element(found_.data(), found_.data() + request_.limit, found_.data() + found_.size(), less);
            });
            found_.shrink(request_.limit);
        }
        if (request_.rerank) {
            cost_.comparisons = static_cast<std::int64_t>(found_.size());
            reranker_.append(query_, {found_.data(), found_.size()}, hits);
        } else {
            const std::span<const Hit> sorted = sorter_.sort(found_, request_.radius, order_, work_);
            Id* ids = hits.ids.extend(sorted.size());
            Distance* distances = hits.distances.extend(sorted.size());
            work_.in_blocks(sorted.size(), [&](std::size_t first, std::size_t last) {
                for (std::size_t i = first; i < last; ++i) {
                    ids[i] = order_.id(sorted[i]);
                    distances[i] = distance_of(sorted[i]);
                }
            });
        }
        hits.end_query(cost_);
    }

    // Return an order by (asymmetric distance, id).
    auto nearer() const {
        return [this](Ranked left, Ranked right) {
            if (number_of(left) != number_of(right)) return left < right;
            return order_.id(found_[index_of(left)]) < order_.id(found_[index_of(right)]);
        };
    }

    // Write the hits in the order of their asymmetric distances.
    void finish_ranked(Hits& hits) {
        work_.in_order(nearest_.size(), nearer(),
                       [&](const auto& less) { std::sort(nearest_.begin(), nearest_.end(), less); });
        const std::size_t count = nearest_.size();
        Id* ids = hits.ids.extend(count);
        Distance* distances = hits.distances.extend(count);
        float* reported = hits.embedding_distances.extend(count);
        for (std::size_t i = 0; i < count; ++i) {
            const Hit hit = found_[index_of(nearest_[i])];
            ids[i] = order_.id(hit);
            distances[i] = distance_of(hit);
            reported[i] = asymmetric_.unit() * static_cast<float>(number_of(nearest_[i]));
        }
        hits.end_query(cost_);
    }

    // Keep each row once.
    void keep_different() {
        seen_.reset(found_.size());
        std::size_t kept = 0;
        work_.in_blocks(found_.size(), [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
                found_[kept] = found_[i];
                kept += seen_.add(found_[i]);
            }
        });
        found_.shrink(kept);
    }

    // Keep each row once, and only the nearest `count`, by (asymmetric distance, id).
    void keep_nearest(std::size_t count) {
        if (found_.size() <= count && !ranks_) return keep_different();
        const std::size_t n_found = found_.size(), n_bins = asymmetric_.highest() + 1;
        bins_.assign(n_bins, 0);
        const Asymmetric* distances = distances_.data();
        for (std::size_t i = 0; i < n_found; ++i) ++bins_[raw(distances[i])];
        seen_.reset(n_found);
        positions_.resize(n_found + kKernelSlack);
        nearest_.clear();
        for (std::size_t bin = 0; bin < n_bins && nearest_.size() < std::min(count, n_found);) {
            // Some rows are there more than once, so a few more are looked at than are missing.
            const std::size_t missing = std::min(count, n_found) - nearest_.size(), first = bin;
            for (std::size_t sum = 0; bin < n_bins && sum < missing + missing / 8;) sum += bins_[bin++];
            const std::size_t within = kernel_.between(distances, n_found, static_cast<Asymmetric>(first),
                                                       static_cast<Asymmetric>(bin - 1), positions_.data());
            work_.in_blocks(within, [&](std::size_t from, std::size_t to) {
                for (std::size_t k = from; k < to; ++k) {
                    const std::uint32_t i = positions_[k];
                    if (seen_.add(found_[i])) nearest_.push_back(ranked_of(raw(distances[i]), i));
                }
            });
        }
        keep_smallest(nearest_, count, room_, nearer());
        if (ranks_) return;
        kept_.clear();
        for (const Ranked near : nearest_) kept_.push_back(found_[index_of(near)]);
        found_.clear();
        std::copy(kept_.begin(), kept_.end(), found_.extend(kept_.size()));
    }

    const Layout& layout_;
    const CodeKernel& kernel_;
    const Manifest& manifest_;
    const Request& request_;
    const HitOrder order_;
    const bool ranks_;        // hits, by asymmetric distance
    const bool chooses_;      // rows, by asymmetric distance, before their embeddings are compared
    const std::size_t n_rows_;
    Work work_;
    Reranker reranker_;
    double guess_ = 2;  // of the cost at which the budget is spent, in mean costs of a bit

    // The query at hand; set by begin().
    std::size_t query_ = 0;
    const std::uint8_t* code_ = nullptr;
    std::size_t left_ = 0;  // of the budget
    Cost cost_;
    double mean_cost_ = 0;
    std::size_t n_tables_ = 0;
    std::size_t n_found_ = 0;
    AsymmetricDistance asymmetric_;

    // Memory that is used again and again.
    std::vector<FlipCost> flip_costs_;
    std::vector<ProbedTable> tables_;
    std::vector<FlipSet> sets_;
    std::vector<std::size_t> n_sets_;  // of each table
    Growing<Bucket> buckets_;
    std::vector<Bucket> last_buckets_, by_excerpts_;
    std::vector<RowRun> planned_;
    Growing<Hit> found_;
    Growing<Asymmetric> distances_;  // of each hit that was found
    RowSet seen_;
    HitSorter sorter_;
    std::vector<std::uint32_t> bins_, positions_;
    std::vector<Ranked> nearest_, room_;  // by asymmetric distance; places among the hits
    std::vector<Hit> kept_, by_code_;
    std::vector<Asymmetric> distances_by_code_;
    std::array<RowNumber, kBlockRows> numbers_;
    KernelRoom kernel_room_;
};

}  // namespace hamtarget
