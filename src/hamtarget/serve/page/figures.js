// Figures of a search and of the index, behind a toggle.

import * as draw from "/page/draw.js";
import { $, bits, bytes, count, element, milliseconds } from "/page/parts.js";
import { state } from "/page/state.js";

function figure(id, value, unit) {
  $(id).replaceChildren(value, ...(unit ? [element("small", { textContent: ` ${unit}` })] : []));
}

export function forgetAnswer() {
  $("answer").hidden = true;
}

export function showAnswer(answer) {
  $("answer").hidden = false;
  figure("m-hits", count.format(answer.hits.length) + (answer.truncated ? "+" : ""));
  figure("m-time", milliseconds(answer.took.index_ms), "ms");
  figure("m-candidates", count.format(answer.cost.candidates));
  figure("m-comparisons", count.format(answer.cost.comparisons));
  if (answer.histogram) showHistogram(answer.histogram, answer.radius ?? state.stats.radius);
}

function showHistogram(histogram, radius) {
  const within = histogram.counts.slice(0, radius + 1).reduce((sum, each) => sum + each, 0);
  const last = histogram.counts.length - 1;
  $("histogram").replaceChildren(draw.histogram(histogram.counts, radius),
    element("div", { class: "ticks", "aria-hidden": "true" }, element("span", { textContent: "0" }),
      element("span", { textContent: bits(last) })));
  const whole = histogram.sampled ? `a sample of ${count.format(histogram.rows)} items` : `all ${count.format(histogram.rows)} items`;
  const text = `${count.format(within)} of ${whole} lie within ${bits(radius)} of the query.`;
  $("histogram").setAttribute("aria-label", `Histogram of distances. ${text}`);
  $("histogram-text").textContent = text;
}

export function showStats(stats) {
  const rows = [
    ["Items", count.format(stats.items)],
    ["Bits", count.format(stats.n_bits)],
    ["Radius", bits(stats.radius)],
    ["Substrings", count.format(stats.substrings)],
    ["Index memory", bytes(stats.index_bytes)],
    ["On disk", bytes(stats.disk_bytes)],
    ["Process memory", stats.resident_bytes ? bytes(stats.resident_bytes) : "-"],
    ["Encoder", stats.input_shape ? stats.input_shape.join(" x ") || "texts" : "none (codes only)"],
    ["Embeddings", stats.embedding ?? "none"],
    ["Searches", stats.searches.map((each) => (each === stats.advised && each !== "search" ? `${each} (advised)` : each)).join(", ")],
    ["Changes", stats.writable ? "allowed" : "not allowed"],
  ];
  $("stats").replaceChildren(...rows.map(([name, value]) =>
    element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
  $("balance").replaceChildren(draw.balance(stats.bit_balance));
  const off = stats.bit_balance.reduce((sum, share) => sum + Math.abs(share - 0.5), 0) / stats.bit_balance.length;
  $("balance-text").textContent = stats.sample_rows
    ? `Share of ones in each bit: one half is best, and these are ${(100 * off).toFixed(1)} points off on average.`
    : "No items yet.";
}
