// Which pairs a pattern allows, how far apart they are, and which no span limits; the bits came from Python.

// meta.patterns has one entry for all heads or one for each: { name, free, grid }. The bits are of rows of keys, one
// pattern after the other, each beginning in a byte of its own; long inputs have none, as Python computes them.
export function patternsOf(meta, view) {
  if (!meta.patterns) return null;
  const bytes = new Uint8Array(view ? view.buffer : 0, view ? view.byteOffset : 0, view ? view.byteLength : 0);
  const size = Math.ceil((meta.queries * meta.keys) / 8);
  return meta.patterns.map(({ name, free, grid }, i) => {
    const freeKeys = new Uint8Array(meta.keys);
    for (const token of free) freeKeys[token] = 1;
    const bits = bytes.subarray(i * size, (i + 1) * size);
    return { name, grid, bits, freeKeys, places: grid ? placesOn(grid, meta.keys) : null, tally: null };
  });
}

export function patternOf(data, index) {
  if (!data.patterns) return null;
  return data.patterns[data.patterns.length === 1 ? 0 : index];
}

// Coordinates of every key, row by row of the grid.
function placesOn(grid, keys) {
  const places = new Int32Array(keys * grid.length);
  for (let j = 0; j < keys; j++) {
    let rest = j;
    for (let axis = grid.length - 1; axis >= 0; axis--) {
      places[j * grid.length + axis] = rest % grid[axis];
      rest = Math.floor(rest / grid[axis]);
    }
  }
  return places;
}

export function allows(pattern, pair) {
  return ((pattern.bits[pair >> 3] >> (pair & 7)) & 1) === 1;
}

export function isFree(pattern, position, key) {
  return pattern.freeKeys[key] === 1 || pattern.freeKeys[position] === 1;
}

// Along the tokens, or on a grid the largest of the distances along its axes.
export function distanceIn(pattern, position, key) {
  if (!pattern || !pattern.places) return position - key;
  const axes = pattern.grid.length;
  let far = 0;
  for (let axis = 0; axis < axes; axis++) {
    const apart = pattern.places[position * axes + axis] - pattern.places[key * axes + axis];
    far = Math.max(far, Math.abs(apart));
  }
  return far;
}

// Counted once: the pairs of all queries, and those of the last, that are nearer than each distance.
export function tallyOf(data, pattern) {
  pattern.tally ??= { all: countPairs(data, pattern, 0), last: countPairs(data, pattern, data.queries - 1) };
  return pattern.tally;
}

function countPairs({ queries, keys }, pattern, firstRow) {
  const nearer = new Float64Array(keys + 1);
  let free = 0;
  for (let row = firstRow; row < queries; row++) {
    const position = row + keys - queries;
    for (let j = 0; j <= position; j++) {
      if (!allows(pattern, row * keys + j)) continue;
      if (isFree(pattern, position, j)) free++;
      else nearer[distanceIn(pattern, position, j) + 1]++;
    }
  }
  for (let x = 0; x < keys; x++) nearer[x + 1] += nearer[x];
  return { free, nearer };
}

export function within({ free, nearer }, reach) {
  return free + nearer[Math.min(reach, nearer.length - 1)];
}
