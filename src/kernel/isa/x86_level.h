// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace headspan {

// 4, 3 or 1: the level of the x86-64 System V ABI (section 3.1.1, table 3.1) that the processor and the system support.
// Level 2 counts as 1. Does not use __builtin_cpu_supports, whose tables clang does not link on Windows.
int x86_level();

}  // namespace headspan
