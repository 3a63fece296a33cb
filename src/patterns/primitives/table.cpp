// SPDX-License-Identifier: BSD-3-Clause
// The factory functions of all patterns by their Python names. Each is defined at the end of the file of its pattern.
#include <memory>
#include <stdexcept>
#include <string>

#include "patterns/primitive.h"

namespace headspan {

using MakePrimitive = std::unique_ptr<Primitive>(const Numbers&);

MakePrimitive make_blocks, make_blockwise, make_fixed, make_full, make_global, make_mask, make_window,
    make_neighborhood, make_strided;
std::unique_ptr<Primitive> make_random(const Numbers& numbers, std::shared_ptr<const Pattern> avoid);

namespace {

struct Row {
  const char* name;
  MakePrimitive* make;
};

constexpr Row table[] = {
    {"blocks", make_blocks},   {"blockwise", make_blockwise},
    {"fixed", make_fixed},     {"full", make_full},
    {"global", make_global},   {"mask", make_mask},
    {"window", make_window},   {"neighborhood", make_neighborhood},
    {"strided", make_strided},
};

}  // namespace

std::unique_ptr<Primitive> make_primitive(const std::string& name, const Numbers& numbers,
                                          const std::shared_ptr<const Pattern>& avoid) {
  if (name == "random") return make_random(numbers, avoid);  // the only one that depends on another pattern
  for (Row const& row : table)
    if (name == row.name) return row.make(numbers);
  throw std::invalid_argument("there is no pattern named " + name);
}

}  // namespace headspan
