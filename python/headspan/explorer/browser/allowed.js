// Who sees whom beside causality and spans: the pairs of a pattern, of documents and of what is not padding, how far
// apart they are, and which of them no span limits. The bits came from Python.

// meta.patterns has one entry for all heads or one for each: { name, free, grid, gridStart }; its name is null where there is no
// pattern but padding or documents. The bits are of rows of keys, one entry after the other, each beginning in a byte of
// its own; maps from Python have none.
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

// Coordinates of every key, row by row of the grid; keys beside it are free of spans and of any distance.
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

// Why a pair that is not later is not there at all, in the order in which one would look.
export function reasonOf({ segments, padding, ranged }, rule, position, token, removed) {
  if (token < padding[0] || token >= padding[1]) return "padding";
  if (segments && segments[position] !== segments[token]) return "of another document";
  if (removed) return "a removed key";
  if (!ranged) return "not in the pattern";
  return rule.name ? "not in the pattern, or out of its range" : "out of its range";
}

// Along the tokens, negative for a later key; on a grid the largest of the distances along its axes.
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
