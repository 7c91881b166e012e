// Drawings of codes and counts as SVG, of few elements for any number of bits.

const NAMESPACE = "http://www.w3.org/2000/svg";
const CELLS_A_ROW = 64;

function svg(name, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function bitsOf(hex) {
  const bits = [];
  for (let place = 0; place < hex.length; place += 2) {
    const byte = parseInt(hex.slice(place, place + 2), 16);
    // Little-endian: bit k of a code is bit k % 8 of byte k / 8.
    for (let bit = 0; bit < 8; bit += 1) bits.push((byte >> bit) & 1);
  }
  return bits;
}

export function differing(left, right) {
  const places = [];
  left.forEach((bit, place) => { if (bit !== right[place]) places.push(place); });
  return places;
}

// Return the path of cells that are `margin` smaller than their row, above and below.
function cells(places, columns, margin = 0) {
  const tall = 1 - 2 * margin;
  return places.map((place) =>
    `M${place % columns} ${Math.floor(place / columns) + margin}h.84v${tall}h-.84z`).join("");
}

// Draw a hit's bits as cells; those that differ from the query's stand out.
export function strip(bits, query) {
  const columns = Math.min(CELLS_A_ROW, bits.length);
  const rows = Math.ceil(bits.length / columns);
  const kinds = { zero: [], one: [], differ: [] };
  bits.forEach((bit, place) => {
    kinds[query && query[place] !== bit ? "differ" : bit ? "one" : "zero"].push(place);
  });
  const box = document.createElement("div");
  box.className = "strip";
  box.style.setProperty("--rows", rows);
  box.append(svg("svg", { viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...Object.entries(kinds).map(([kind, places]) => svg("path", { class: kind, d: cells(places, columns, kind === "differ" ? 0.02 : 0.2) }))));
  return box;
}

// Draw a code as a square, for an item without a picture.
export function glyph(bits) {
  const side = Math.ceil(Math.sqrt(bits.length));
  const ones = [];
  bits.forEach((bit, place) => { if (bit) ones.push(place); });
  return svg("svg", { viewBox: `0 0 ${side} ${side}`, class: "glyph", "aria-hidden": "true" },
    svg("path", { class: "cell", d: cells(ones, side) }));
}

export function histogram(counts, radius) {
  const most = Math.max(1, ...counts);
  const height = 100;
  const path = (from, to) => counts.slice(from, to).map((count, place) => {
    // A single item must be visible, too.
    const tall = count ? Math.max(1.5, (height * count) / most) : 0;
    return `M${from + place + 0.08} ${height}v${-tall}h.84v${tall}z`;
  }).join("");
  return svg("svg", { viewBox: `0 0 ${counts.length} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "bar within", d: path(0, radius + 1) }),
    svg("path", { class: "bar", d: path(radius + 1, counts.length) }),
    svg("path", { class: "axis", d: `M0 ${height}h${counts.length}` }),
    svg("path", { class: "mark", d: `M${radius + 1} 0v${height}` }));
}

// Draw the share of ones in each bit from the middle line: flat is best.
export function balance(shares) {
  const bars = shares.map((share, place) => `M${place + 0.1} 50v${(0.5 - share) * 100}h.8V50z`).join("");
  return svg("svg", { viewBox: `0 0 ${shares.length} 100`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "axis", d: `M0 0h${shares.length}M0 100h${shares.length}` }),
    svg("path", { class: "bar within", d: bars }),
    svg("path", { class: "axis", d: `M0 50h${shares.length}` }));
}
