// Which pairs exist besides causality and spans: those of a pattern, of documents and of tokens that are not padding;
// their distances, and which of them no span limits. The bits come from Python.

// Heads that see the same pairs share a rule of meta.rules. A plain rule has nothing but causality. The name of a
// pattern is null if padding or documents are the only limits. The bits are the rows of keys, one rule after the other
// without the plain ones, and every rule starts at a new byte. Maps from Python have no bits.
export function rulesOf(data, view) {
  const bytes = new Uint8Array(view ? view.buffer : 0, view ? view.byteOffset : 0, view ? view.byteLength : 0);
  const size = Math.ceil((data.queries * data.keys) / 8);
  let at = 0;
  return data.rules.map((rule) => {
    const freeKeys = new Uint8Array(data.total.keys);
    for (const token of rule.free) freeKeys[token] = 1;
    const freeBefore = new Int32Array(data.total.keys + 1);
    freeKeys.forEach((isFree, token) => (freeBefore[token + 1] = freeBefore[token] + isFree));
    const bits = rule.plain ? null : bytes.subarray(at, (at += size));
    const places = rule.grid ? placesOn(rule.grid, rule.gridStart, data.total.keys) : null;
    return { ...rule, bits, freeKeys, freeBefore, places, tally: null };
  });
}

export function ruleOf(data, index) {
  return data.rules[data.ruleOf[index]];
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
  return !rule.bits || ((rule.bits[pair >> 3] >> (pair & 7)) & 1) === 1;
}

export function isFree(rule, position, token) {
  return rule.freeKeys[token] === 1 || rule.freeKeys[position] === 1;
}

// Whether causality hides a key. It hides none in a prefix.
export function isLater({ causal, prefix }, position, token) {
  return causal && position < token && token >= prefix;
}

// The reason why a pair that is not later does not exist, the most general reason first.
export function reasonOf({ name, segments, padding, ranged }, position, token, removed) {
  if (token < padding[0] || token >= padding[1]) return "padding";
  if (segments && segments[position] !== segments[token]) return "of another document";
  if (removed) return "a removed key";
  if (!ranged) return "not in the pattern";
  return name ? "not in the pattern, or out of its range" : "out of its range";
}

// The distance along the tokens, negative for a later key; on a grid the largest of the distances along its axes.
export function distanceIn(rule, position, token) {
  if (!rule.places) return position - token;
  const axes = rule.grid.length;
  let far = 0;
  for (let axis = 0; axis < axes; axis++) {
    const apart = rule.places[position * axes + axis] - rule.places[token * axes + axis];
    far = Math.max(far, Math.abs(apart));
  }
  return far;
}
