// SPDX-License-Identifier: BSD-3-Clause
// The kernel of one group of queries, compiled once per instruction set. It does not know patterns or threads. scalar.h
// has the same computation in plain loops: read it first, then forward.h, backward.h, and matmul.h for the products.
#pragma once

#include "backward.h"  // IWYU pragma: export
#include "forward.h"   // IWYU pragma: export
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "peak.h"  // IWYU pragma: export

namespace headspan::HEADSPAN_ISA {

template <class T>
Kernel<T> kernel() {
  return {kStoresPastCaches, workspace_bytes<T>, forward_begin<T>, forward_step<T>,
          forward_end<T>,    weights_begin<T>,   weights_tile<T>,  products_tile<T>,
          backward_begin<T>, backward_step<T>,   backward_end<T>,  multiply_adds<T, Vec<T>>};
}

}  // namespace headspan::HEADSPAN_ISA
