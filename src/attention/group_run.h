// SPDX-License-Identifier: BSD-3-Clause
// The parts that the drivers need to run groups on the kernel: the workspace of a thread, and the forward pass of a
// group.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "kernel/dispatch.h"
#include "kernel/interface.h"
#include "query_group.h"
#include "request.h"
#include "schedule/tile_list.h"

namespace headspan {

// The memory of one thread: a batch of tiles, workspaces of the kernel, and room for the given number of elements.
template <class T>
struct ThreadWorkspace {
  TileBatch* tiles;
  void* kernel;  // the first workspace
  T* copies;
  std::size_t kernel_bytes;

  ThreadWorkspace(const Kernel<T>& k, int head_dim, int value_dim, std::size_t copied = 0, std::size_t kernels = 1) {
    static_assert(sizeof(TileBatch) % 64 == 0, "the kernel's part stays aligned");
    kernel_bytes = (k.workspace_bytes(head_dim, value_dim) + 63) / 64 * 64;
    char* const base = thread_scratch(sizeof(TileBatch) + kernels * kernel_bytes + copied * sizeof(T));
    tiles = reinterpret_cast<TileBatch*>(base);
    kernel = base + sizeof(TileBatch);
    copies = reinterpret_cast<T*>(base + sizeof(TileBatch) + kernels * kernel_bytes);
  }
  void* kernel_at(std::size_t i) const { return static_cast<char*>(kernel) + i * kernel_bytes; }
};

// The forward pass of a group. If a masked pair may have spoilt it, it is repeated without masked pairs. Returns false
// if it was stopped. for_each_tiles(step) must call step(tiles, count) for all tiles and return false if it was
// stopped.
template <class T, class ForEachTiles>
bool run_forward(const Kernel<T>& kernel, const Request<T>& request, QueryGroup<T>& queries, ForwardRows<T>& rows,
                 const ThreadWorkspace<T>& workspace, ForEachTiles for_each_tiles) {
  for (queries.group.skip_masked = false;; queries.group.skip_masked = true) {
    kernel.forward_begin(queries.group, workspace.kernel);
    auto const step = [&](const Tile* tiles, int count) {
      kernel.forward_step(queries.group, tiles, count, workspace.kernel);
      return true;
    };
    if (!for_each_tiles(step)) return false;
    queries.for_each_persistent_tile(request, [&](const Group<T>& group, const Tile& tile) {
      kernel.forward_step(group, &tile, 1, workspace.kernel);
    });
    if (kernel.forward_end(queries.group, rows, workspace.kernel) || queries.group.skip_masked) return true;
  }
}

template <class T>
bool run_forward(const Kernel<T>& kernel, const Request<T>& request, QueryGroup<T>& queries, const VisibleKeys& keys,
                 ForwardRows<T>& rows, const ThreadWorkspace<T>& workspace, const StopCheck& stop) {
  return run_forward(kernel, request, queries, rows, workspace, [&](auto step) {
    return for_each_batch(queries.schedule.tiles(keys), *workspace.tiles, stop, step);
  });
}

template <class T>
T log_sum_exp(T maximum, double sum) {
  constexpr double ln2 = 0.69314718055994530942;
  if (sum == 0) return -std::numeric_limits<T>::infinity();
  return static_cast<T>(static_cast<double>(maximum) * ln2 + std::log(sum));
}

// Whether to write the rows of a result past the caches. That helps for whole lines of an array larger than the caches,
// which would otherwise be read before they are written.
template <class T>
bool past_caches(const Kernel<T>& kernel, const ArrayView<T, 4>& result) {
  constexpr std::size_t line = 64, least = std::size_t(8) << 20;
  std::size_t bytes = sizeof(T), odd = reinterpret_cast<std::uintptr_t>(result.data);
  for (std::ptrdiff_t length : result.shape) bytes *= static_cast<std::size_t>(length);
  for (int axis = 0; axis < 3; axis++) odd |= static_cast<std::size_t>(result.stride[axis]) * sizeof(T);
  odd |= static_cast<std::size_t>(result.shape[3]) * sizeof(T);
  return kernel.stores_past_caches && bytes >= least && odd % line == 0;
}

// One thread if the work would be nearly done before a second thread has started.
template <class T>
int useful_threads(const Request<T>& request, const Control& control) {
  double const lanes = static_cast<double>(std::max<std::ptrdiff_t>(request.queries(), 16));  // at least one vector
  std::ptrdiff_t const keys = request.cache ? std::min(request.keys(), request.cache->longest()) : request.keys();
  double const flops = 4.0 * static_cast<double>(request.batch() * request.heads()) * lanes *
                       static_cast<double>(keys) * request.head_dim();
  return flops < 1e7 ? 1 : control.threads;
}

}  // namespace headspan
