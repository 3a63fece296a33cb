// SPDX-License-Identifier: BSD-3-Clause
#include "stage.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace headspan {

namespace {

// The grouping of a term is that of its primitive with the strongest wish: a grid, then a stride, then sections.
Grouping grouping_of(const Term& term) {
  auto const rank = [](const Grouping& g) { return g.grid.axes ? 3 : g.stride > 1 ? 2 : g.section ? 1 : 0; };
  Grouping best;
  for (const Primitive* primitive : term) {
    Grouping const own = primitive->grouping();
    if (rank(own) > rank(best)) best = own;
  }
  return best;
}

bool same_groups(const Grouping& a, const Grouping& b) {
  return a.stride == b.stride && a.grid == b.grid && std::equal(a.dilation, a.dilation + kGridAxes, b.dilation);
}

void words_of_term(const Term& term, const Lanes& lanes, const Tile& tile, std::ptrdiff_t keys, std::uint64_t* words) {
  term.front()->words(lanes, tile, keys, words);
  for (auto primitive = term.begin() + 1; primitive != term.end(); ++primitive) {
    std::uint64_t more[kTileKeys];
    (*primitive)->words(lanes, tile, keys, more);
    for (int r = 0; r < tile.count; r++) words[r] &= more[r];
  }
}

void words_of_terms(const std::vector<Term>& terms, const Lanes& lanes, const Tile& tile, std::ptrdiff_t keys,
                    std::uint64_t* words) {
  words_of_term(terms.front(), lanes, tile, keys, words);
  for (auto term = terms.begin() + 1; term != terms.end(); ++term) {
    std::uint64_t more[kTileKeys];
    words_of_term(*term, lanes, tile, keys, more);
    for (int r = 0; r < tile.count; r++) words[r] |= more[r];
  }
}

}  // namespace

std::vector<KeyRun> Pass::runs(const Lanes& lanes, std::ptrdiff_t keys) const {
  std::vector<KeyRun> runs;
  auto const add = [&](const Lanes& of_class, std::ptrdiff_t residue) {
    Intervals seen, in_term, in_primitive, before;
    for (const Term& term : terms) {
      in_term.clear();
      for (const Primitive* primitive : term) {
        in_primitive.clear();
        primitive->intervals(of_class, keys, in_primitive);
        before.swap(in_term);
        if (primitive == term.front())
          in_term.swap(in_primitive);
        else
          intersect(before, in_primitive, in_term);
      }
      before.swap(seen);
      unite(before, in_term, seen);
    }
    runs.reserve(runs.size() + seen.size());
    for (const Interval& interval : seen) {
      std::ptrdiff_t const first = interval.first + floor_mod(residue - interval.first, stride);
      if (first < interval.last) runs.push_back({first, interval.last, stride});
    }
  };
  LaneClasses const classes = residues(lanes, stride);
  if (classes.count() == 1) {
    add(lanes, classes.at(0));
    return runs;
  }
  for (int i = 0; i < classes.count(); i++) {
    std::ptrdiff_t index[kLanes];
    int count = 0;
    for (int lane = 0; lane < lanes.count; lane++)
      if (classes.word(i) >> lane & 1) index[count++] = lanes.index[lane];
    add(Lanes(index, count), classes.at(i));
  }
  return runs;
}

void Pass::words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t keys, std::uint64_t* words) const {
  words_of_terms(terms, lanes, tile, keys, words);
  if (earlier.empty()) return;
  std::uint64_t counted[kTileKeys];
  words_of_terms(earlier, lanes, tile, keys, counted);
  for (int r = 0; r < tile.count; r++) words[r] &= ~counted[r];
}

Pattern::Pattern(const Description& terms) {
  for (const auto& term : terms) {
    terms_.emplace_back();
    for (const auto& [name, numbers] : term) {
      primitives_.push_back(make_primitive(name, numbers));
      Primitive const& primitive = *primitives_.back();
      terms_.back().push_back(&primitive);
      if (primitive.grouping().grid.axes) grid_ = primitive.grouping().grid;
      std::vector<std::int64_t> both;
      std::set_union(global_tokens_.begin(), global_tokens_.end(), primitive.global_tokens().begin(),
                     primitive.global_tokens().end(), std::back_inserter(both));
      global_tokens_.swap(both);
    }
  }
}

void Pattern::check(std::ptrdiff_t queries, std::ptrdiff_t keys) const {
  for (const auto& primitive : primitives_) {
    Grid const grid = primitive->grouping().grid;
    if (grid.axes && !(grid == grid_ && grid.tokens() == keys && queries <= keys))
      throw std::invalid_argument("the shape of a pattern is not that of the tokens");
  }
  if (!global_tokens_.empty() && (global_tokens_.front() < 0 || global_tokens_.back() >= keys))
    throw std::invalid_argument("a global token is out of range");
}

std::vector<Pass> Pattern::passes(std::ptrdiff_t queries, std::ptrdiff_t keys) const {
  struct Draft {
    Grouping grouping;
    std::vector<Term> terms;
  };
  std::vector<Draft> drafts;
  for (const Term& term : terms_) {
    Grouping const grouping = grouping_of(term);
    auto draft = std::find_if(drafts.begin(), drafts.end(),
                              [&](const Draft& other) { return same_groups(other.grouping, grouping); });
    if (draft == drafts.end()) draft = drafts.insert(drafts.end(), {grouping, {}});
    draft->grouping.section = std::max(draft->grouping.section, grouping.section);
    draft->terms.push_back(term);
  }
  bool const self_pairs = std::any_of(terms_.begin(), terms_.end(), [](const Term& term) {
    return std::all_of(term.begin(), term.end(), [](const Primitive* primitive) { return primitive->sees_itself(); });
  });
  std::vector<Pass> passes;
  for (const Draft& draft : drafts) {
    Pass pass;
    pass.self_pairs = self_pairs;
    pass.stride = draft.grouping.stride;
    pass.terms = draft.terms;
    for (const Pass& done : passes) pass.earlier.insert(pass.earlier.end(), done.terms.begin(), done.terms.end());
    std::vector<std::int64_t> apart;
    for (const Term& term : draft.terms)
      for (const Primitive* primitive : term)
        apart.insert(apart.end(), primitive->global_tokens().begin(), primitive->global_tokens().end());
    std::sort(apart.begin(), apart.end());
    pass.order = make_order(draft.grouping, queries, keys, apart);
    passes.push_back(std::move(pass));
  }
  return passes;
}

Pass Pattern::whole() const {
  Pass pass;
  pass.terms = terms_;
  return pass;
}

}  // namespace headspan
