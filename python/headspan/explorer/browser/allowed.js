// Which pairs exist besides causality and spans: those of a pattern, of documents and of tokens that are not padding;
// their distances, and which of them no span limits. The bits come from Python.

// meta.patterns has one entry for all heads or one per head: { name, free, grid, gridStart }. The name is null if
// padding or documents are the only rules. The bits are the rows of keys, one entry after the other, and every row
// starts at a new byte. Maps from Python have no bits.
export function rulesOf(data, view) {
  if (!data.patterns) return null;
  const bytes = new Uint8Array(view ? view.buffer : 0, view ? view.byteOffset : 0, view ? view.byteLength : 0);
  const size = Math.ceil((data.queries * data.keys) / 8);
  return data.patterns.map(({ name, free, grid, gridStart }, i) => {
    const freeKeys = new Uint8Array(data.total.keys);
    for (const token of free) freeKeys[token] = 1;
    const bits = bytes.subarray(i * size, (i + 1) * size);
    return { name, grid, bits, freeKeys, places: grid ? placesOn(grid, gridStart, data.total.keys) : null, tally: null };
  });
}

export function ruleOf(data, index) {
  if (!data.rules) return null;
  return data.rules[data.rules.length === 1 ? 0 : index];
}

// Coordinates of every key, row by row of the grid. Keys outside the grid have no distance, and no span limits them.
function placesOn(grid, start, keys) {
  const places = new Int32Array(keys * grid.length);
  for (let j = 0; j < keys; j++) {
    let rest = Math.max(j - start, 0);
    for (let axis = grid.length - 1; axis >= 0; axis--) {
      places[j * grid.length + axis] = rest % grid[axis];
      rest = Math.floor(rest / grid[axis]);
    }
  }
  return places;
}

export function allows(rule, pair) {
  return ((rule.bits[pair >> 3] >> (pair & 7)) & 1) === 1;
}

export function isFree(rule, position, token) {
  return rule.freeKeys[token] === 1 || rule.freeKeys[position] === 1;
}

// The reason why a pair that is not later does not exist, the most general reason first.
export function reasonOf({ segments, padding, ranged }, rule, position, token, removed) {
  if (token < padding[0] || token >= padding[1]) return "padding";
  if (segments && segments[position] !== segments[token]) return "of another document";
  if (removed) return "a removed key";
  if (!ranged) return "not in the pattern";
  return rule.name ? "not in the pattern, or out of its range" : "out of its range";
}

// The distance along the tokens, negative for a later key; on a grid the largest of the distances along its axes.
export function distanceIn(rule, position, token) {
  if (!rule || !rule.places) return position - token;
  const axes = rule.grid.length;
  let far = 0;
  for (let axis = 0; axis < axes; axis++) {
    const apart = rule.places[position * axes + axis] - rule.places[token * axes + axis];
    far = Math.max(far, Math.abs(apart));
  }
  return far;
}
