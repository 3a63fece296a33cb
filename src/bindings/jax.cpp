// SPDX-License-Identifier: BSD-3-Clause
// The handler for XLA: passes its buffers as NumPy arrays, without a copy, and Python errors as XLA errors.
#include <pybind11/stl.h>
#include <xla/c_api.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "numpy_views.h"

namespace headspan::bindings {

namespace {

// Computes a call, run(text, operands, results). It lives as long as the process, like the handler.
py::object* run = nullptr;
py::object* bfloat16 = nullptr;  // a type that NumPy itself does not have

struct Failure {
  XLA_FFI_Error_Code code = XLA_FFI_Error_Code_OK;
  std::string message;
};

const char* type_name(XLA_FFI_DataType type) {
  static constexpr std::pair<XLA_FFI_DataType, const char*> names[] = {
      {XLA_FFI_DataType_PRED, "bool"},   {XLA_FFI_DataType_S8, "int8"},     {XLA_FFI_DataType_S16, "int16"},
      {XLA_FFI_DataType_S32, "int32"},   {XLA_FFI_DataType_S64, "int64"},   {XLA_FFI_DataType_U8, "uint8"},
      {XLA_FFI_DataType_U16, "uint16"},  {XLA_FFI_DataType_U32, "uint32"},  {XLA_FFI_DataType_U64, "uint64"},
      {XLA_FFI_DataType_F16, "float16"}, {XLA_FFI_DataType_F32, "float32"}, {XLA_FFI_DataType_F64, "float64"},
      {XLA_FFI_DataType_BF16, "uint16"},  // as bits
  };
  for (auto const& [known, name] : names)
    if (known == type) return name;
  throw py::type_error("there are arrays of a type that headspan does not take");
}

py::array array_over(const void* pointer, bool writable) {
  auto const& buffer = *static_cast<const XLA_FFI_Buffer*>(pointer);
  std::vector<py::ssize_t> const shape(buffer.dims, buffer.dims + buffer.rank);
  py::array array(py::dtype(type_name(buffer.dtype)), shape, buffer.data, py::none());  // with a base: no copy
  if (buffer.dtype == XLA_FFI_DataType_BF16) array = array.attr("view")(*bfloat16);
  if (!writable) array.attr("setflags")(py::arg("write") = false);
  return array;
}

std::string only_text(const XLA_FFI_Attrs& attributes) {
  require(attributes.size == 1 && attributes.types[0] == XLA_FFI_AttrType_STRING, "call", " has no description");
  auto const& text = *static_cast<const XLA_FFI_ByteSpan*>(attributes.attrs[0]);
  return std::string(text.ptr, text.len);
}

// Holds the interpreter's lock, which the core releases while it computes.
void call_python(const XLA_FFI_CallFrame& frame) {
  std::vector<py::array> operands, results;
  for (std::int64_t i = 0; i < frame.args.size; i++) operands.push_back(array_over(frame.args.args[i], false));
  for (std::int64_t i = 0; i < frame.rets.size; i++) results.push_back(array_over(frame.rets.rets[i], true));
  (*run)(only_text(frame.attrs), operands, results);
}

Failure failure_of(py::error_already_set& error) {
  if (error.matches(PyExc_ValueError) || error.matches(PyExc_TypeError))
    return {XLA_FFI_Error_Code_INVALID_ARGUMENT, py::str(error.value())};
  if (error.matches(PyExc_MemoryError)) return {XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, py::str(error.value())};
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();  // XLA turns this into an error of its own; the interrupt is raised again after it
    return {XLA_FFI_Error_Code_CANCELLED, "interrupted"};
  }
  return {XLA_FFI_Error_Code_INTERNAL, error.what()};
}

// The running calls, in threads of XLA that nobody waits for when the interpreter ends. A call that requests the
// interpreter's lock after that never returns.
class Calls {
 public:
  // Whether a new call may start.
  bool begin() {
    std::lock_guard<std::mutex> const lock(mutex_);
    if (!ended_) under_way_++;
    return !ended_;
  }
  void end() {
    std::lock_guard<std::mutex> const lock(mutex_);
    if (--under_way_ == 0) none_.notify_all();
  }
  void wait_for_the_last() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_ = true;
    none_.wait(lock, [this] { return under_way_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int under_way_ = 0;
  bool ended_ = false;
};

Calls& calls() {
  static Calls* const all = new Calls;  // threads may still run after all other objects are destroyed
  return *all;
}

Failure with_lock(const XLA_FFI_CallFrame& frame) {
  py::gil_scoped_acquire const lock;
  try {
    call_python(frame);
  } catch (py::error_already_set& error) {
    return failure_of(error);
  } catch (const py::builtin_exception& error) {  // those of this file
    return {XLA_FFI_Error_Code_INVALID_ARGUMENT, error.what()};
  } catch (const std::bad_alloc&) {
    return {XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "there is not enough memory for the call"};
  } catch (const std::exception& error) {
    return {XLA_FFI_Error_Code_INTERNAL, error.what()};
  }
  return {};
}

Failure execute(const XLA_FFI_CallFrame& frame) {
  if (!calls().begin()) return {XLA_FFI_Error_Code_CANCELLED, "the program ends"};
  Failure failure = with_lock(frame);
  calls().end();
  return failure;
}

// XLA checks the version of its interface that this file uses. The parts used here have been the same in all minor
// versions so far, which only append to structures, so this handler accepts the version of the caller.
bool answered(const XLA_FFI_CallFrame& frame) {
  for (XLA_FFI_Extension_Base* extension = frame.extension_start; extension; extension = extension->next) {
    if (extension->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata& metadata = *reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = frame.api ? frame.api->api_version.minor_version : XLA_FFI_API_MINOR;
    metadata.traits = 0;
    return true;
  }
  return false;
}

// Exceptions must not pass through XLA, so they are turned into its errors.
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
  if (answered(*frame) || frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  Failure const failure = execute(*frame);
  if (failure.code == XLA_FFI_Error_Code_OK) return nullptr;
  XLA_FFI_Error_Create_Args arguments{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, failure.message.c_str(),
                                      failure.code};
  return frame->api->XLA_FFI_Error_Create(&arguments);
}

py::capsule handler(py::object new_run, py::object new_bfloat16) {
  delete std::exchange(run, new py::object(std::move(new_run)));
  delete std::exchange(bfloat16, new py::object(std::move(new_bfloat16)));
  XLA_FFI_Handler* const function = &handle;
  return py::capsule(reinterpret_cast<void*>(function), "xla._CUSTOM_CALL_TARGET");
}

}  // namespace

void register_jax(py::module_& m) {
  m.def("jax_handler", &handler, py::arg("run"), py::arg("bfloat16"),
        "The handler that jax.ffi registers: it calls run(text, operands, results), arrays in the memory of XLA.");
  m.def(
      "end_jax_calls", [] { calls().wait_for_the_last(); }, py::call_guard<py::gil_scoped_release>(),
      "Waits for the calls that are under way, and refuses all others from now on.");
}

}  // namespace headspan::bindings
