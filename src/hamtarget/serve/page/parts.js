// Small parts of the page: elements, numbers and names.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";

export const $ = (id) => document.getElementById(id);
const LEAST_TEXT = 40;

export const count = new Intl.NumberFormat("en");

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function button(label, onclick, more = {}) {
  return element("button", { type: "button", class: "button", textContent: label, onclick, ...more });
}

export function many(number, one, others = `${one}s`) {
  return `${count.format(number)} ${number === 1 ? one : others}`;
}

export function bits(number) {
  return many(number, "bit");
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

// --- what an item is called ----------------------------------------------------------------------------------------

function idText(id) {
  return typeof id === "string" ? id : `id ${id}`;
}

const isTold = (value) => typeof value === "number" || (typeof value === "string" && value !== "");

// The field that says what an item is, if there is one: [field, value].
export function labelOf(payload) {
  const field = ["label", "class"].find((each) => isTold(payload?.[each]));
  return field ? [field, payload[field]] : null;
}

// The name of an item: its title, else the name of its file, else its id.
export function nameOf(id, payload) {
  const told = [payload?.title, payload?.name].find(isTold);
  if (told !== undefined) return String(told);
  if (isTold(payload?.image)) return String(payload.image).split(/[\\/]/).at(-1);
  return idText(id);
}

// The text of an item that has no picture, as [field, text]: its longest field, if that is more than a word or two.
export function textOf(payload) {
  const texts = Object.entries(payload ?? {}).filter(([, value]) => typeof value === "string" && value.length >= LEAST_TEXT);
  return texts.sort((a, b) => b[1].length - a[1].length)[0] ?? null;
}

// Everything else that the payload says, as [field, text].
export function details(payload) {
  const said = new Set(["image", "title", "name", labelOf(payload)?.[0]]);
  return Object.entries(payload ?? {}).filter(([field]) => !said.has(field))
    .map(([field, value]) => [field, typeof value === "object" ? api.toJson(value) : String(value)]);
}

// --- pictures ------------------------------------------------------------------------------------------------------

// Pictures of a few pixels are shown sharp, not blurred.
export function smallen(img) {
  img.addEventListener("load", () => img.classList.toggle("small", img.naturalWidth < 64));
}

export function hasPicture(payload, stats) {
  return stats.images && typeof payload?.image === "string";
}

// The bits of an item's code; of several, those nearest to the query's.
export function bitsOfItem(item, queryBits = null) {
  const codes = (item.codes ?? [item.code]).filter(Boolean).map(draw.bitsOf);
  if (!queryBits || codes.length < 2) return codes[0] ?? null;
  return codes.toSorted((a, b) => draw.differing(queryBits, a).length - draw.differing(queryBits, b).length)[0];
}

// What is shown of an item: its picture, else the beginning of its text, else its code as a pattern.
export function likeness(item, { size, stats, alt = "" }) {
  const glyph = () => draw.glyph(bitsOfItem(item) ?? []);
  if (hasPicture(item.payload, stats)) return picture(item.id, { size, instead: glyph, alt });
  const text = textOf(item.payload);
  return text ? element("span", { class: "excerpt", textContent: text[1] }) : glyph();
}

// The picture of an item; what `instead` makes is in its place where it cannot be shown.
function picture(id, { size, instead, alt = "" }) {
  const img = element("img", { class: "picture", alt, loading: "lazy", decoding: "async" });
  const give = () => img.replaceWith(instead());
  smallen(img);
  img.addEventListener("error", give, { once: true });
  api.showPicture(img, id, size).catch(give);
  return img;
}
