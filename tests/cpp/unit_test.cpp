// SPDX-License-Identifier: BSD-3-Clause
// The parts of the core, each compared with its definition in plain loops, on random cases that are the same in every
// run. core_test.cpp runs all of them together.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest.h>
