// SPDX-License-Identifier: BSD-3-Clause
// The gradients of the parameters of a query, from the rows of its group.
#pragma once

#include <cmath>

#include "attention/query_group.h"
#include "attention/request.h"
#include "base/array_view.h"
#include "kernel/interface.h"

namespace headspan {

// The weight of the sink, which has no value, times -delta of backward.h; 0 in a stage without the sink.
template <class T>
double sink_gradient(const QueryGroup<T>& queries, const BackwardRows<T>& rows, int lane) {
  if (std::isinf(queries.group.sink[lane])) return 0;
  double delta = -static_cast<double>(rows.grad_lse[lane]);
  for (int d = 0; d < queries.group.value_dim; d++)
    delta += static_cast<double>(rows.grad_out[lane][d]) * static_cast<double>(rows.out[lane][d]);
  T const score = static_cast<T>(queries.group.sink[lane] * kLog2e);
  return -delta * std::exp2(static_cast<double>(score - rows.maximum[lane])) *
         static_cast<double>(rows.inverse_sum[lane]);
}

// s = scale / temperature * query . key: the sum of ds * s over the keys is query . grad_query
template <class T>
double temperature_gradient(const Request<T>& request, const QueryGroup<T>& queries, const BackwardRows<T>& rows,
                            int lane) {
  if (rows.inverse_sum[lane] == 0) return 0;  // no key: a NaN in the query must not spread
  double sum = 0;
  for (int d = 0; d < request.head_dim(); d++)
    sum += static_cast<double>(queries.group.query[lane][d]) * static_cast<double>(rows.grad_query[lane][d]);
  return -sum / static_cast<double>(*request.temperature.at(queries.batch, queries.head, queries.schedule.query(lane)));
}

// Stores the requested gradients, or adds them to those of earlier stages.
template <class T>
void store_parameters(const Request<T>& request, const GradientViews<T>& gradients, bool adds,
                      const QueryGroup<T>& queries, const BackwardRows<T>& rows, int lane) {
  auto const store = [&](const ArrayView<double, 3>& all, double gradient) {
    double& to = *all.at(queries.batch, queries.head, queries.schedule.query(lane));
    to = adds ? to + gradient : gradient;
  };
  if (gradients.span) store(gradients.span, request.ramp > 0 ? rows.grad_span[lane] / request.ramp : 0);
  if (gradients.slopes) store(gradients.slopes, rows.grad_slope[lane]);
  if (gradients.sinks) store(gradients.sinks, sink_gradient(queries, rows, lane));
  if (gradients.temperature) store(gradients.temperature, temperature_gradient(request, queries, rows, lane));
}

}  // namespace headspan
