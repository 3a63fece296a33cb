// SPDX-License-Identifier: BSD-3-Clause
#include "dispatch.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "interface.h"

namespace headspan {

namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

const Variant& choose_variant() {
  int count;
  const Variant* const* const variants = compiled_variants(&count);
  const char* const wanted = std::getenv("HEADSPAN_ISA");
  for (int i = count - 1; i >= 0; i--) {
    bool const named = wanted && *wanted;
    if ((!named || wanted == std::string(variants[i]->name)) && variants[i]->available()) return *variants[i];
  }
  throw std::runtime_error("HEADSPAN_ISA is '" + std::string(wanted ? wanted : "") +
                           "', but this machine can run: " + join(available_variants()));
}

}  // namespace

std::vector<std::string> available_variants() {
  int count;
  const Variant* const* const variants = compiled_variants(&count);
  std::vector<std::string> names;
  for (int i = 0; i < count; i++)
    if (variants[i]->available()) names.push_back(variants[i]->name);
  return names;
}

const Variant& active_variant() {
  static const Variant& variant = choose_variant();
  return variant;
}

template <>
Kernel<float> active_kernel<float>() {
  return active_variant().float32();
}
template <>
Kernel<double> active_kernel<double>() {
  return active_variant().float64();
}

}  // namespace headspan
