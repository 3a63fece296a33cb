# The calls of headspan_isa below list the instruction sets, the best last: name, headers, flags, and the test whether
# this machine supports it. Units, dispatch and tests follow from these rows. A new instruction set is a row and the
# file that it names, which defines the operations of its vectors and the tuning of the loops.
set(optimize -O3)
if(HEADSPAN_SANITIZE OR HEADSPAN_COVERAGE)
  set(optimize -O1)  # checks and counters dominate the time, and compiling takes half as long
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND optimize -fno-tree-pta)  # this analysis of pointers takes half of the time of compiling the checks
  endif()
endif()

# Adds a row; with a sanitizer or for the coverage only if this machine supports it, because compiling then takes ten
# minutes per unit.
set(isas "")
function(headspan_isa name headers flags available)
  if(flags AND (HEADSPAN_SANITIZE OR HEADSPAN_COVERAGE))
    set(question "${CMAKE_CURRENT_BINARY_DIR}/runs_${name}.cpp")
    file(WRITE "${question}" "#include \"kernel/isa/x86_level.cpp\"\n"
                             "int main() { using namespace headspan; return ${available} ? 0 : 1; }\n")
    try_run(missing_${name} compiled "${CMAKE_CURRENT_BINARY_DIR}/runs_${name}" "${question}"
            CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CMAKE_CURRENT_SOURCE_DIR}")
    if(missing_${name})
      message(STATUS "headspan: without ${name}, which this processor does not have")
      return()
    endif()
  endif()
  set(isas ${isas} ${name} PARENT_SCOPE)
  set(headers_${name} "${headers}" PARENT_SCOPE)
  set(flags_${name} "${flags}" PARENT_SCOPE)
  set(available_${name} "${available}" PARENT_SCOPE)
endfunction()

headspan_isa(scalar kernel/scalar.h "" "true")
headspan_isa(portable "kernel/isa/portable.h;kernel/vector.h" "" "true")
if(HEADSPAN_X86 AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  target_sources(headspan_kernel PRIVATE kernel/isa/x86_level.cpp)
  headspan_isa(avx2 "kernel/isa/avx2.h;kernel/isa/x86_level.h;kernel/vector.h" "-march=x86-64-v3" "x86_level() >= 3")
  headspan_isa(avx512 "kernel/isa/avx512.h;kernel/isa/x86_level.h;kernel/vector.h"
    "-march=x86-64-v4;-mprefer-vector-width=512" "x86_level() >= 4")
endif()

if(HEADSPAN_SANITIZE)  # the plain loops, and the best vectors, which share their source with the others
  list(GET isas -1 best)
  set(isas scalar ${best})
endif()

set(declarations "")
set(entries "")
foreach(name IN LISTS isas)
  set(available "${available_${name}}")
  set(includes "")
  foreach(header IN LISTS headers_${name})
    string(APPEND includes "#include \"${header}\"\n")
  endforeach()
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/isa_${name}.cpp")
  configure_file(kernel/isa/unit.cpp.in "${unit}" @ONLY)
  target_sources(headspan_kernel PRIVATE "${unit}")
  # Exact arithmetic without -ffast-math: only the contraction to fused multiply-add, and no errno or trap bookkeeping.
  set(options ${flags_${name}} ${optimize} -falign-functions=64 -falign-loops=64 -ffp-contract=fast -fno-math-errno
              -fno-trapping-math -Wno-psabi)
  if(HEADSPAN_SANITIZE AND flags_${name})  # these overlap with the address sanitizer and take two thirds of the time
    list(APPEND options -fno-sanitize=null,alignment,object-size,bounds)
  endif()
  set_source_files_properties("${unit}" PROPERTIES COMPILE_OPTIONS "${options}")
  # For tests that compile more code than the kernel for each instruction set.
  set_property(GLOBAL APPEND PROPERTY headspan_isas ${name})
  set_property(GLOBAL PROPERTY headspan_isa_options_${name} "${options}")
  string(APPEND declarations "namespace ${name} { extern const Variant variant; }\n")
  string(APPEND entries "&${name}::variant, ")
endforeach()
configure_file(kernel/isa/table.cpp.in "${CMAKE_CURRENT_BINARY_DIR}/isa_table.cpp" @ONLY)
target_sources(headspan_kernel PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/isa_table.cpp")
