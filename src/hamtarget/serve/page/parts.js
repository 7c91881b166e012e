// Parts of the page: how numbers, items, the histogram and the store are shown.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";

export const $ = (id) => document.getElementById(id);
export const count = new Intl.NumberFormat("en");

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function bits(number) {
  return `${number} bit${number === 1 ? "" : "s"}`;
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${number < 10 && unit ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

export function milliseconds(number) {
  return number < 10 ? number.toFixed(number < 0.1 ? 3 : 2) : count.format(Math.round(number));
}

export function payloadText(payload) {
  return Object.entries(payload ?? {}).filter(([key]) => key !== "image")
    .map(([key, value]) => `${key}: ${typeof value === "object" ? api.toJson(value) : value}`).join(" · ");
}

function idText(id) {
  return typeof id === "string" ? id : `id ${id}`;
}

export function nameOf(id, payload) {
  const told = payload?.title ?? payload?.name ?? payload?.class ?? payload?.label;
  return typeof told === "string" || typeof told === "number" ? String(told) : idText(id);
}

// Pictures of a few pixels are shown sharp, not blurred.
export function smallen(img) {
  img.addEventListener("load", () => img.classList.toggle("small", img.naturalWidth < 64));
}

// A hit as a button that searches from it; without the query's bits, an item to begin with.
export function card(hit, queryBits, { hasImages, onpress }) {
  const code = hit.code ? draw.bitsOf(hit.code) : null;
  const name = nameOf(hit.id, hit.payload);
  const where = code && queryBits ? draw.differing(queryBits, code) : [];
  const label = (queryBits ? `${name}, ${bits(hit.distance)} away` : name)
    + (where.length && where.length <= 8 ? `, in bits ${where.join(", ")}` : "")
    + ". Search from it.";
  const made = element("button", { type: "button", class: "hit", "aria-label": label, onclick: onpress });
  if (hasImages && typeof hit.payload?.image === "string") {
    const img = element("img", { class: "picture", alt: "", loading: "lazy", decoding: "async" });
    smallen(img);
    img.addEventListener("error", () => { if (code) img.replaceWith(draw.glyph(code)); }, { once: true });
    api.showPicture(img, hit.id, 256).catch(() => { if (code) img.replaceWith(draw.glyph(code)); });
    made.append(img);
  } else if (code) {
    made.append(draw.glyph(code));
  }
  const line = element("span", { class: "line" });
  if (queryBits) line.append(element("span", { class: "distance", textContent: bits(hit.distance) }));
  if (hit.embedding_distance !== undefined) {
    line.append(element("span", {
      class: "closeness", title: "Distance of the embeddings", textContent: hit.embedding_distance.toFixed(3),
    }));
  }
  if (queryBits) made.append(line);
  if (code) made.append(draw.strip(code, queryBits));
  const payload = payloadText(hit.payload);
  made.append(element("span", { class: "name", textContent: name, title: payload || name }));
  if (payload && payload !== `class: ${name}`) made.append(element("span", { class: "payload", textContent: payload, title: payload }));
  else if (name !== idText(hit.id)) made.append(element("span", { class: "payload", textContent: idText(hit.id) }));
  return made;
}

export function showHistogram(histogram, radius) {
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
