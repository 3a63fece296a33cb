// SPDX-License-Identifier: BSD-3-Clause
// The request for the drivers, which divide attention into groups of queries and groups among threads, and pass each
// group to the kernel. Arrays are (batch, heads, tokens, head_dim) with any strides, but the last axis is contiguous.
// The caller has checked all shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/array_view.h"
#include "base/parallel.h"
#include "kernel/rows/row_source.h"
#include "key_cache.h"
#include "patterns/expression.h"
#include "schedule/visibility.h"
#include "terms/score_term.h"

namespace headspan {

template <class T>
struct Request {
  ArrayView<const T, 4> query;
  ArrayView<const T, 4> key, value;  // with a cache only their shapes
  const KeyCache* cache = nullptr;
  ArrayView<const Byte, 4> new_key, new_value;  // the last keys, which are not in the cache yet
  // (key_heads, m, head_dim), which all queries see; null: none
  ArrayView<const T, 3> persistent_key, persistent_value;
  ArrayView<const T, 3> span;         // (batch, heads, tokens); null: unlimited
  ArrayView<const T, 3> temperature;  // (batch, heads, tokens); null: 1
  ArrayView<const T, 2> slopes;       // (batch, heads); null: 0
  ArrayView<const T, 2> sinks;        // (batch, heads); null: -infinity
  ArrayView<const T, 3> key_bias;     // (batch, heads, keys); null: 0
  ArrayView<const bool, 3> removed;   // (batch, heads, keys), where key_bias is -infinity; null: none
  // Of every batch item, with a contiguous last axis; both or neither. See Visibility.
  ArrayView<const double, 2> query_positions, key_positions;
  ArrayView<const std::int64_t, 1> key_start, key_stop;      // (batch), padding is outside; null: all keys count
  ArrayView<const std::int64_t, 1> prefix_end;               // (batch), end of the keys that all queries see; null: 0
  ArrayView<const std::int64_t, 2> range_first, range_last;  // (batch, queries), the range of keys of each; null: all
  std::vector<const Pattern*> patterns;                      // one, one per head, one per batch item and head, or none
  std::vector<std::shared_ptr<const ScoreTerm<T>>> terms;
  double scale = 1;
  double ramp = 32;
  double softcap = 0;  // 0: none
  double dropout = 0;
  std::uint64_t seed = 0;  // of dropout
  bool causal = true;
  bool include_self = true;

  std::ptrdiff_t batch() const { return query.shape[0]; }
  std::ptrdiff_t heads() const { return query.shape[1]; }
  std::ptrdiff_t queries() const { return query.shape[2]; }
  std::ptrdiff_t keys() const { return key.shape[2]; }
  std::ptrdiff_t key_heads() const { return key.shape[1]; }
  std::ptrdiff_t heads_per_key_head() const { return heads() / key_heads(); }
  std::ptrdiff_t persistent_keys() const { return persistent_key.shape[1]; }
  int head_dim() const { return static_cast<int>(query.shape[3]); }
  int value_dim() const { return static_cast<int>(value.shape[3]); }
  double span_of(std::ptrdiff_t item, std::ptrdiff_t head, std::ptrdiff_t i) const {
    return span ? static_cast<double>(*span.at(item, head, i)) : std::numeric_limits<double>::infinity();
  }
  Visibility visibility(std::ptrdiff_t item) const {
    Visibility v{queries(), keys(), causal, include_self, ramp};
    if (query_positions) v.query_position = query_positions.at(item), v.key_position = key_positions.at(item);
    if (key_start) v.key_start = *key_start.at(item);
    if (key_stop) v.key_stop = *key_stop.at(item);
    if (prefix_end) v.prefix_end = *prefix_end.at(item);
    if (range_first) v.range_first = range_first.at(item), v.range_last = range_last.at(item);
    return v;
  }
};

// out (batch, heads, tokens, value_dim). Optionally lse (batch, heads, tokens), and for the backward pass the
// statistics (batch, heads, tokens, 2), which are the maximum and the inverse of the sum of every query.
template <class T>
struct ForwardViews {
  ArrayView<T, 4> out;
  ArrayView<T, 3> lse;
  ArrayView<T, 4> statistics;
};

template <class T>
void attention_forward(const Request<T>& request, const ForwardViews<T>& results, const Control& control);

// The results of the forward pass and their gradients. grad_lse may be null.
template <class T>
struct Upstream {
  ArrayView<const T, 4> out, statistics, grad_out;
  ArrayView<const T, 3> grad_lse;
};

// span, temperature, slopes and sinks are per query, (batch, heads, tokens), key_bias is (batch, heads, keys), and
// persistent_key and persistent_value are (batch, heads, m * dims). A null gradient is not computed and costs nothing.
template <class T>
struct GradientViews {
  ArrayView<T, 4> query, key, value;
  ArrayView<double, 3> span, temperature, slopes, sinks, key_bias, persistent_key, persistent_value;
  std::vector<ArrayView<double, 3>> terms;  // of each term of the request: (batch, heads, its gradient_size)
};

template <class T>
void attention_backward(const Request<T>& request, const Upstream<T>& upstream, const GradientViews<T>& gradients,
                        const Control& control);

// Weights of chosen queries and keys, pooled: the mean over pool_rows queries of the sum over pool_cols keys.
struct Selection {
  ArrayView<const std::int64_t, 1> rows, cols;
  std::ptrdiff_t pool_rows, pool_cols;
};

// weights (batch, heads, ceil(rows / pool_rows), ceil(cols / pool_cols))
template <class T>
void attention_weights(const Request<T>& request, const Selection& selection, const ArrayView<T, 4>& weights,
                       const Control& control);

// The number of counts for all batch items and heads: one if they are all equal.
struct PairCounts {
  std::ptrdiff_t items, heads;
};
template <class T>
PairCounts pair_counts(const Request<T>& request);

// pairs (items, heads): the numbers of pairs with a mask above 0
template <class T>
void count_pairs(const Request<T>& request, const ArrayView<std::int64_t, 2>& pairs, const Control& control);

}  // namespace headspan
