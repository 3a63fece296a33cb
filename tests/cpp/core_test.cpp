// SPDX-License-Identifier: BSD-3-Clause
// Runs the core without Python, for sanitizers that do not work with Python. Every result must be bitwise equal on one
// thread and on several, and stopping must not lose a thread.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "attention/request.h"
#include "base/array_view.h"
#include "base/parallel.h"
#include "kernel/dispatch.h"
#include "patterns/expression.h"

namespace {

using headspan::ArrayView;
using headspan::Control;

template <class T, int rank>
struct Array {
  std::vector<T> values;
  std::ptrdiff_t shape[rank];

  explicit Array(std::initializer_list<std::ptrdiff_t> lengths) {
    std::size_t size = 1;
    int axis = 0;
    for (std::ptrdiff_t n : lengths) size *= static_cast<std::size_t>(shape[axis++] = n);
    values.resize(size);
  }
  template <class U = T>
  ArrayView<U, rank> view() {
    ArrayView<U, rank> v;
    v.data = values.data();
    std::ptrdiff_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
      v.shape[axis] = shape[axis];
      v.stride[axis] = stride;
      stride *= shape[axis];
    }
    return v;
  }
  void fill(std::mt19937& random, T low, T high) {
    std::uniform_real_distribution<T> number(low, high);
    for (T& x : values) x = number(random);
  }
};

struct Shape {
  std::ptrdiff_t batch, heads, key_heads, queries, keys, head_dim;
  bool causal;
  headspan::Pattern::Description pattern;  // empty: none
  bool include_self = true;
};

// All results of one problem, as bits in one vector.
template <class T>
std::vector<double> results(const Shape& s, int threads) {
  std::mt19937 random(7);
  Array<T, 4> query{s.batch, s.heads, s.queries, s.head_dim}, key{s.batch, s.key_heads, s.keys, s.head_dim},
      value{s.batch, s.key_heads, s.keys, s.head_dim}, out{s.batch, s.heads, s.queries, s.head_dim},
      grad_out{s.batch, s.heads, s.queries, s.head_dim}, grad_query{s.batch, s.heads, s.queries, s.head_dim},
      grad_key{s.batch, s.key_heads, s.keys, s.head_dim}, grad_value{s.batch, s.key_heads, s.keys, s.head_dim};
  Array<T, 3> span{s.batch, s.heads, s.queries}, lse{s.batch, s.heads, s.queries};
  Array<T, 4> statistics{s.batch, s.heads, s.queries, 2};
  Array<double, 3> grad_span{s.batch, s.heads, s.queries}, grad_key_bias{s.batch, s.heads, s.keys};
  Array<T, 3> key_bias{s.batch, s.heads, s.keys};
  for (auto* array : {&query, &key, &value, &grad_out}) array->fill(random, -1, 1);
  span.fill(random, 0, static_cast<T>(s.keys) / 2);
  key_bias.fill(random, -1, 1);
  Array<std::int64_t, 1> key_stop{s.batch};
  for (std::int64_t& length : key_stop.values) length = s.keys - 1;  // no query sees the last one
  // Previous contents of a result must not be added to.
  for (auto* array : {&grad_query, &grad_key, &grad_value}) std::fill(array->values.begin(), array->values.end(), NAN);
  std::fill(grad_key_bias.values.begin(), grad_key_bias.values.end(), NAN);

  headspan::Request<T> problem;
  problem.query = query.template view<const T>();
  problem.key = key.template view<const T>();
  problem.value = value.template view<const T>();
  problem.span = span.template view<const T>();
  problem.key_bias = key_bias.template view<const T>();
  headspan::Pattern const pattern(s.pattern);
  if (!s.pattern.empty()) problem.patterns = {&pattern};
  problem.key_stop = key_stop.template view<const std::int64_t>();
  problem.scale = 0.3;
  problem.causal = s.causal;
  problem.include_self = s.include_self;
  Control control;
  control.threads = threads;
  control.interrupted = [] { return false; };
  headspan::attention_forward<T>(problem, {out.view(), lse.view(), statistics.view()}, control);

  headspan::Upstream<T> upstream;
  upstream.out = out.template view<const T>();
  upstream.statistics = statistics.template view<const T>();
  upstream.grad_out = grad_out.template view<const T>();
  headspan::GradientViews<T> gradients;
  gradients.query = grad_query.view();
  gradients.key = grad_key.view();
  gradients.value = grad_value.view();
  gradients.span = grad_span.view();
  gradients.key_bias = grad_key_bias.view();
  headspan::attention_backward(problem, upstream, gradients, control);

  std::vector<double> all(grad_span.values.begin(), grad_span.values.end());
  all.insert(all.end(), grad_key_bias.values.begin(), grad_key_bias.values.end());
  for (auto* array : {&out, &grad_query, &grad_key, &grad_value})
    all.insert(all.end(), array->values.begin(), array->values.end());
  return all;
}

bool same_for_all_threads(const Shape& s) {
  for (int threads : {2, 4, 5}) {
    if (results<float>(s, threads) != results<float>(s, 1)) return false;
    if (results<double>(s, threads) != results<double>(s, 1)) return false;
  }
  return true;
}

// An exception of any task, and an interrupt, are thrown by parallel_for on the calling thread.
bool stops() {
  int caught = 0;
  try {
    headspan::parallel_for(1000, 4, {}, [](std::ptrdiff_t task, const headspan::StopCheck&) {
      if (task == 500) throw std::runtime_error("task");
    });
  } catch (const std::runtime_error&) {
    caught++;
  }
  try {
    headspan::parallel_for(PTRDIFF_MAX, 4, [] { return true; }, [](std::ptrdiff_t, const headspan::StopCheck&) {});
  } catch (const headspan::Interrupted&) {
    caught++;
  }
  return caught == 2;
}

}  // namespace

int main() {
  std::printf("variant %s, OpenMP %s\n", headspan::active_variant().name, headspan::has_openmp() ? "yes" : "no");
  using Patterns = headspan::Pattern::Description;
  Patterns const local{{{"window", {300, 0, 1}, {}}}};
  Patterns const classes{{{"window", {40, 0, 1}, {}}}, {{"strided", {50, -1}, {}}}, {{"global", {3, 200}, {}}}};
  Patterns const window{{{"window", {60, 60, 1}, {}}}};
  auto const avoid = std::make_shared<headspan::Pattern>(window);
  Patterns const drawn{window[0], {{"random", {2, 32, 1}, avoid}}, {{"global", {0, 299}, {}}}};
  Patterns const late{{{"global", {803}, {}}}};
  Patterns const grid{{{"neighborhood", {2, 1, 13, 23, 5, 7, 1, 1, 0, 1, 1, 2}, {}}}, {{"global", {0}, {}}}};
  const Shape shapes[] = {
      {1, 1, 1, 700, 700, 16, true, {}},      {1, 4, 4, 450, 450, 16, true, {}},
      {1, 2, 2, 400, 900, 16, false, local},  {2, 4, 2, 130, 200, 17, true, {}},
      {1, 3, 1, 200, 129, 8, false, {}},      {3, 2, 2, 1, 65, 5, true, {}},
      {1, 1, 1, 500, 500, 16, true, classes}, {1, 3, 3, 260, 300, 8, false, drawn},
      {1, 1, 1, 300, 300, 8, false, grid},    {1, 1, 1, 900, 900, 8, false, late, false},
  };
  int failed = 0, passed = 0;
  for (const Shape& shape : shapes) ++(same_for_all_threads(shape) ? passed : failed);
  ++(stops() ? passed : failed);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
