// SPDX-License-Identifier: BSD-3-Clause
// Any set of pairs, as a list of tiles of 64 queries and 64 keys: a bit for each pair, and none for tiles that are
// full.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

constexpr std::ptrdiff_t kSide = 64;  // of a tile, whose queries and keys start at multiples of it

// The lanes of a group that are in one row of tiles.
struct TileRow {
  std::ptrdiff_t begin, end;  // its tiles
  std::uint64_t lanes;
  std::uint64_t queries;  // the same lanes, as bits of the tiles
  bool in_line;           // whether the bits of the tiles only have to be moved
  int first_lane, first_query;
};

class Mask : public Primitive {
 public:
  // The first row of tiles, which may be negative, the number of rows, rows + 1 offsets into the tiles, and for each
  // tile its column, ascending in a row, and its place among the partial tiles, or -1 if it is full. Then follow the
  // partial tiles: for each key the set of queries that see it.
  explicit Mask(const Numbers& numbers)
      : numbers_(numbers), first_row_(numbers_.at(0)), rows_(numbers_.at(1)), starts_(numbers_.data() + 2) {
    std::ptrdiff_t const size = static_cast<std::ptrdiff_t>(numbers_.size());
    bool well_formed =
        rows_ >= 0 && size >= 3 + rows_ && starts_[0] == 0 && std::is_sorted(starts_, starts_ + rows_ + 1);
    std::ptrdiff_t const tiles = well_formed ? starts_[rows_] : 0, words = size - 3 - rows_ - 2 * tiles;
    well_formed = well_formed && words >= 0 && words % kSide == 0;
    columns_ = starts_ + rows_ + 1;
    places_ = columns_ + tiles;
    words_ = places_ + tiles;
    well_formed = well_formed && std::all_of(places_, places_ + tiles,
                                             [&](std::int64_t place) { return place >= -1 && place < words / kSide; });
    if (!well_formed) throw std::invalid_argument("the tiles of a mask are not well formed");
  }

  Grouping grouping() const override { return Grouping::sections(kSide); }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    std::vector<TileRow> const rows = rows_of(lanes);
    return group_mask(
        [this, rows, keys](Intervals& out) {
          Intervals before, of_row;
          for (const TileRow& row : rows) {
            of_row.clear();
            for (std::ptrdiff_t tile = row.begin; tile < row.end; tile++) add_keys(tile, row.queries, keys, of_row);
            before.swap(out);
            unite(before, of_row, out);
          }
        },
        [this, rows, lanes](const Tile& tile, std::uint64_t* masks) {
          std::fill_n(masks, tile.count, 0);
          for (const TileRow& row : rows) {
            for_each_block(tile, kSide, [&](std::ptrdiff_t column, int first, int last) {
              const std::int64_t* const at = std::lower_bound(columns_ + row.begin, columns_ + row.end, column);
              if (at == columns_ + row.end || *at != column) return;
              std::int64_t const place = places_[at - columns_];
              for (int r = first; r < last; r++)
                masks[r] |=
                    place < 0 ? row.lanes : to_lanes(word(place, key_index(tile, r) - column * kSide), row, lanes);
            });
          }
        });
  }

 private:
  std::vector<TileRow> rows_of(const Lanes& lanes) const {
    LaneClasses const classes = block_rows(lanes, kSide);
    std::vector<TileRow> rows;
    for (int i = 0; i < classes.count(); i++) {
      std::ptrdiff_t const row = classes.at(i) - first_row_;
      if (row < 0 || row >= rows_ || starts_[row] == starts_[row + 1]) continue;
      TileRow one{starts_[row], starts_[row + 1], classes.mask(i), 0, true, -1, -1};
      for (int lane = 0; lane < lanes.count; lane++) {
        if (!(one.lanes >> lane & 1)) continue;
        int const query = query_of(lanes, lane);
        if (one.first_lane < 0) one.first_lane = lane, one.first_query = query;
        one.in_line &= query - one.first_query == lane - one.first_lane;
        one.queries |= std::uint64_t(1) << query;
      }
      rows.push_back(one);
    }
    return rows;
  }

  static int query_of(const Lanes& lanes, int lane) { return static_cast<int>(floor_mod(lanes.index[lane], kSide)); }

  std::uint64_t word(std::int64_t place, std::ptrdiff_t key) const {
    return static_cast<std::uint64_t>(words_[place * kSide + key]);
  }

  // The lanes of the queries of a word.
  static std::uint64_t to_lanes(std::uint64_t word, const TileRow& row, const Lanes& lanes) {
    if (row.in_line) return (word >> row.first_query << row.first_lane) & row.lanes;
    std::uint64_t mask = 0;
    for (int lane = 0; lane < lanes.count; lane++)
      if (row.lanes >> lane & word >> query_of(lanes, lane) & 1) mask |= std::uint64_t(1) << lane;
    return mask;
  }

  // Adds the keys of a tile that some of the queries see.
  void add_keys(std::ptrdiff_t tile, std::uint64_t queries, std::ptrdiff_t keys, Intervals& out) const {
    std::ptrdiff_t const first = columns_[tile] * kSide;
    if (places_[tile] < 0) return append(out, first, first + kSide, keys);
    for (std::ptrdiff_t key = 0, end; key < kSide; key = end) {
      bool const seen = word(places_[tile], key) & queries;
      for (end = key + 1; end < kSide && bool(word(places_[tile], end) & queries) == seen;) end++;
      if (seen) append(out, first + key, first + end, keys);
    }
  }

  Numbers const numbers_;
  std::ptrdiff_t first_row_, rows_;
  const std::int64_t *starts_, *columns_, *places_, *words_;
};

}  // namespace

std::unique_ptr<Primitive> make_mask(const Numbers& numbers) { return std::make_unique<Mask>(numbers); }

}  // namespace headspan
