// Texts for numbers, lengths and tokens.
import { farthestOf, reachOf } from "./numbers.js";

// A number of tokens, or of another unit of the data.
export function counted({ unit }, x) {
  return `${short(x)} ${x === 1 ? one({ unit }) : unit}`;
}

export function one({ unit }) {
  return unit.replace(/s$/, "");
}

export function some(n, single, more) {
  return `${withCommas(n)}\u00a0${n === 1 ? single : more}`;
}

export function range(first, end) {
  return end - first === 1 ? String(first) : `${first}\u2013${end - 1}`;
}

export function short(x) {
  if (Number.isNaN(x)) return "\u2013";
  const size = Math.abs(x);
  const text = size < 1000 ? String(Number(x.toPrecision(3))) : String(Math.round(x));
  return (size > 0 && size < 0.001 ? x.toExponential(1) : text).replace("-", "\u2212");
}

export function scaled(x, base, units) {
  let unit = 0;
  while (x >= base && unit < units.length - 1) {
    x /= base;
    unit++;
  }
  return `${unit && x < 100 ? x.toPrecision(3) : Math.round(x)}\u00a0${units[unit]}`;
}

export function bytes(x) {
  return scaled(x, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

export function withCommas(x) {
  return x.toLocaleString("en");
}

// A visible form of a token: whitespace is replaced by symbols.
export function visible(token) {
  const signs = { " ": "\u2423", "\n": "\u21b5", "\t": "\u2192" };
  return token === "" ? "\u2205" : token.replace(/[ \n\t]/g, (c) => (token.trim() && c === " " ? c : signs[c]));
}

// A span and its reach, which is the distance to the farthest visible key.
export function spanWords(data, index, span, ramp) {
  return isUnlimited(data, span) ? "no limit" : `${counted(data, span)}, ${reachWords(data, index, span, ramp)}`;
}

export function isUnlimited(data, span) {
  return span >= data.total.keys;
}

export function reachWords(data, index, span, ramp) {
  const reach = reachOf(span, ramp) - 1;
  return reach >= farthestOf(data, index) ? "reaches all" : `reach\u00a0${short(reach)}`;
}
