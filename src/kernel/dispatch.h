// SPDX-License-Identifier: BSD-3-Clause
// Which variant of the kernel this machine runs.
#pragma once

#include <string>
#include <vector>

#include "interface.h"

namespace headspan {

// All variants that were compiled, the best last (generated from the list in isa/variants.cmake).
const Variant* const* compiled_variants(int* count);

// The names of those this machine can run.
std::vector<std::string> available_variants();

// The one that runs: HEADSPAN_ISA, or the best available. Throws std::runtime_error for a name that is unknown or that
// this machine cannot run. Chosen once.
const Variant& active_variant();

template <class T>
Kernel<T> active_kernel();

}  // namespace headspan
