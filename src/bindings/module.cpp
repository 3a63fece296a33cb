// SPDX-License-Identifier: BSD-3-Clause
#include "kernel/dispatch.h"
#include "numpy_views.h"

// Safe without the interpreter's lock: a mutex protects what changes after the imports (of this module, and of
// headspan.jax, which registers its handler).
PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  m.doc() = "The compiled core of headspan. Arguments are checked by the functions of the package, not here.";
  headspan::active_variant();  // a wrong HEADSPAN_ISA fails the import
  headspan::bindings::register_runtime(m);
  headspan::bindings::register_attention(m);
  headspan::bindings::register_blocks(m);
  headspan::bindings::register_jax(m);
  headspan::bindings::register_narrow(m);
}
