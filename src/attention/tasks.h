// SPDX-License-Identifier: BSD-3-Clause
// Divides the groups of a stage into tasks for threads: a few neighbouring groups of one head each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "class_rows.h"
#include "request.h"
#include "schedule/plan.h"
#include "schedule/stage.h"

namespace headspan {

template <class T>
class Tasks {
 public:
  Tasks(const Request<T>& request, const Plan& plan, std::ptrdiff_t stage, int threads)
      : plan_(plan), stage_(stage), heads_(request.heads()) {
    // Enough tasks that no thread waits long for the last one.
    auto const share = [&](std::ptrdiff_t parts, std::ptrdiff_t tasks_a_thread, std::ptrdiff_t most) {
      return std::clamp<std::ptrdiff_t>(request.batch() * heads_ * parts / (tasks_a_thread * threads), 1, most);
    };
    for (std::ptrdiff_t head = 0; head < plan.items() * heads_; head++) {
      auto const [entry, is_new] = of_stage_.try_emplace(stage_of(head));
      if (!is_new) continue;
      OfStage& of_stage = entry->second;
      of_stage.classes = classes_at_a_time(request, entry->first);
      if (of_stage.classes > 0) {
        of_stage.classes = share(entry->first->stride, 8, of_stage.classes);
        of_stage.cuts = class_cuts(*entry->first, of_stage.classes);
      } else {
        std::ptrdiff_t const groups = plan.groups(head / heads_, head % heads_, stage);
        of_stage.cuts = cut(groups, share(groups, 32, 8));
      }
      of_head_ = std::max(of_head_, static_cast<std::ptrdiff_t>(of_stage.cuts.size()) - 1);
    }
    count_ = request.batch() * heads_ * of_head_;
  }

  std::ptrdiff_t count() const { return count_; }

  // The groups first .. last - 1 of a head, of all batch items, with `classes` classes copied at a time.
  struct Task {
    std::ptrdiff_t head, first, last, classes;
  };
  // Long rows come first, so that no thread finishes late.
  Task at(std::ptrdiff_t number) const {
    std::ptrdiff_t const head = number / of_head_;
    OfStage const& of_stage = of_stage_.at(stage_of(head));
    std::size_t const n = static_cast<std::size_t>(of_head_ - 1 - number % of_head_);
    Task task{head, 0, 0, of_stage.classes};
    if (n + 1 < of_stage.cuts.size()) task.first = of_stage.cuts[n], task.last = of_stage.cuts[n + 1];
    return task;
  }

 private:
  struct OfStage {
    std::ptrdiff_t classes = 0;
    std::vector<std::ptrdiff_t> cuts;  // boundaries of tasks
  };

  const PatternStage* stage_of(std::ptrdiff_t head) const { return plan_.stage(head / heads_, head % heads_, stage_); }
  static std::vector<std::ptrdiff_t> cut(std::ptrdiff_t groups, std::ptrdiff_t most) {
    std::vector<std::ptrdiff_t> cuts{0};
    for (std::ptrdiff_t left = groups % most ? groups % most : most; cuts.back() < groups; left = most)
      cuts.push_back(cuts.back() + left);
    return cuts;
  }

  Plan const& plan_;
  std::ptrdiff_t const stage_, heads_;
  std::ptrdiff_t of_head_ = 0, count_;
  std::map<const PatternStage*, OfStage> of_stage_;
};

}  // namespace headspan
