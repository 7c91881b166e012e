// How a request is searched. This follows from the request and the manifest alone, and is the same for all queries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "../../kernels/tables.hpp"
#include "../manifest.hpp"
#include "../table_plan.hpp"
#include "request.hpp"

namespace hamtarget {

class SearchPlan {
  public:
    // A part whose buckets are read.
    struct TabledPart {
        std::size_t part;
        std::size_t n_tables;
        std::size_t n_own_buckets;  // later tables would find no more within the radius
        std::size_t first_lookup;   // own buckets of all parts before it
    };

    // How hits of the query's own buckets are collected.
    enum class Collecting {
        one_by_one,      // each is emitted
        in_lists,        // RowLists of a part, which are then emitted
        in_lists_alone,  // RowLists of the only part, which become the result unless hits are re-ranked
    };

    SearchPlan(const Layout& layout, const Manifest& manifest, const Request& request)
        : until_(request.radius + 2u, 0.0) {
        const bool has_limit = request.limit != kNoLimit;
        bool has_excerpts = false;
        std::size_t n_lookups = 0;
        for (std::size_t p = 0; p < manifest.parts.size(); ++p) {
            const Part& part = manifest.parts[p];
            const auto& tables = part.segment->tables;
            const bool flips = !tables.empty() && request.radius >= tables.size();
            const double scan = scan_cost(part.n_codes(), layout.n_bytes);
            const std::vector<double> costs = tables.empty() ? std::vector<double>() : step_costs(part, layout, request, scan);
            // Without a limit, a search within a radius cannot stop early. Own buckets are weighed query by query.
            if (tables.empty() || (flips && !has_limit && costs.back() > scan)) {
                scanned.push_back(p);
                continue;
            }
            tabled.push_back({p, tables.size(), std::min<std::size_t>(request.radius + 1u, tables.size()), n_lookups});
            n_lookups += tabled.back().n_own_buckets;
            if (flips) first_flip = std::min(first_flip, tables.size());
            has_excerpts |= tables.back().has_excerpts();
            for (std::size_t t = 0; t < until_.size(); ++t) until_[t] += costs[t];
            scan_ += scan;
        }
        collecting = flips() || has_excerpts || request.radius >= kMostLists ? Collecting::one_by_one
                     : manifest.parts.size() == 1 && tabled.size() == 1      ? Collecting::in_lists_alone
                                                                             : Collecting::in_lists;
    }

    // Tell whether buckets are read whose numbers differ from the query's own.
    bool flips() const { return first_flip != kNever; }

    // Return the tables whose own buckets are read, of each part in `tabled` in turn.
    std::vector<const Table*> own_tables(const Manifest& manifest) const {
        std::vector<const Table*> tables;
        for (const TabledPart& from : tabled)
            for (std::size_t j = 0; j < from.n_own_buckets; ++j)
                tables.push_back(&manifest.parts[from.part].segment->tables[j]);
        return tables;
    }

    // Return what the steps `first` to `last` of all parts in `tabled` are expected to cost.
    double steps(std::size_t first, std::size_t last) const { return until_[last + 1] - until_[first]; }
    // Return what reading all rows of these parts costs.
    double scan() const { return scan_; }

    static constexpr std::size_t kNever = std::size_t(-1);

    Collecting collecting = Collecting::one_by_one;
    std::size_t first_flip = kNever;   // first step that flips a bit
    std::vector<TabledPart> tabled;    // a scan may take the place of their buckets, query by query
    std::vector<std::size_t> scanned;  // parts whose rows are all read, for every query

  private:
    // Return the costs of the steps before each t.
    static std::vector<double> step_costs(const Part& part, const Layout& layout, const Request& request, double scan) {
        const auto& tables = part.segment->tables;
        std::vector<double> until(request.radius + 2u, 0.0);
        const auto table_bytes = static_cast<double>(part.segment->memory());
        std::vector<double> bucket(tables.size());
        for (std::size_t j = 0; j < tables.size(); ++j) {
            const Table& table = tables[j];
            const std::size_t size = table.has_excerpts() ? table.excerpts.entry_bytes() : layout.n_bytes + sizeof(RowNumber);
            bucket[j] = bucket_cost(table.mean_bucket, size, table_bytes, table.has_excerpts());
        }
        for (std::size_t t = 0; t <= request.radius; ++t) {
            const std::size_t j = t % tables.size();
            // Far beyond a scan nobody asks how far.
            const bool is_hopeless = until[t] > 1000 * scan;
            until[t + 1] = until[t] + (is_hopeless ? scan : choose(tables[j].key.length(), t / tables.size()) * bucket[j]);
        }
        return until;
    }

    double scan_ = 0;
    std::vector<double> until_;  // [t]: costs of the steps before t
};

}  // namespace hamtarget
