// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace headspan {

// 4, 3 or 1: the level of x86-64's System V ABI (section 3.1.1, table 3.1) that processor and system have. Level 2
// counts as 1. Not __builtin_cpu_supports, whose tables clang does not link on Windows.
int x86_level();

}  // namespace headspan
