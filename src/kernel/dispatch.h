// SPDX-License-Identifier: BSD-3-Clause
// The choice of the kernel variant for this machine.
#pragma once

#include <string>
#include <vector>

#include "interface.h"

namespace headspan {

// All compiled variants, the best last (generated from the list in isa/variants.cmake).
const Variant* const* compiled_variants(int* count);

// The names of the variants that this machine supports.
std::vector<std::string> available_variants();

// The variant in use: HEADSPAN_ISA, or the best available. Throws std::runtime_error if the name is unknown or not
// supported by this machine. Chosen once.
const Variant& active_variant();

template <class T>
Kernel<T> active_kernel();

}  // namespace headspan
