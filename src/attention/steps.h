// SPDX-License-Identifier: BSD-3-Clause
// The order in which the groups of a head add to the gradients of its keys.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "schedule/plan.h"

namespace headspan {

// A group over all of its keys, or over one share of them.
struct Step {
  std::ptrdiff_t group, share = 0, shares = 1;
};

// Every group is a step, but a group apart is one for each share of the keys, after the groups of the same keys.
class Steps {
 public:
  Steps(const Plan& plan, std::ptrdiff_t heads, std::ptrdiff_t keys) : plan_(plan) {
    for (std::ptrdiff_t number = 0; number < plan.passes(); number++) {
      most_.push_back(0);
      for (std::ptrdiff_t head = 0; head < heads; head++) {
        if (const Pass* const pass = plan.pass(head, number)) add(pass, keys);
        most_.back() = std::max(most_.back(), count(head, number));
      }
    }
  }

  std::ptrdiff_t count(std::ptrdiff_t head, std::ptrdiff_t pass) const {
    auto const found = steps_.find(plan_.pass(head, pass));
    return found == steps_.end() ? plan_.groups(head, pass) : static_cast<std::ptrdiff_t>(found->second.size());
  }
  Step at(std::ptrdiff_t head, std::ptrdiff_t pass, std::ptrdiff_t number) const {
    auto const found = steps_.find(plan_.pass(head, pass));
    return found == steps_.end() ? Step{number} : found->second[static_cast<std::size_t>(number)];
  }
  // Most steps of any head.
  std::ptrdiff_t most(std::ptrdiff_t pass) const { return most_[static_cast<std::size_t>(pass)]; }

 private:
  void add(const Pass* pass, std::ptrdiff_t keys) {
    Shares const shares(pass->order, keys);
    if (shares.each == 1 || steps_.count(pass)) return;
    std::vector<Step>& steps = steps_[pass];
    for (std::ptrdiff_t group = 0; group < shares.groups; group++) {
      if (group >= pass->order.apart) steps.push_back({group});
      for (std::ptrdiff_t share = shares.done_before(group); share < shares.done_before(group + 1); share++)
        for (std::ptrdiff_t apart = 0; apart < pass->order.apart; apart++) steps.push_back({apart, share, shares.each});
    }
  }

  Plan const& plan_;
  std::map<const Pass*, std::vector<Step>> steps_;  // of passes with groups apart in shares
  std::vector<std::ptrdiff_t> most_;                // of every pass
};

}  // namespace headspan
