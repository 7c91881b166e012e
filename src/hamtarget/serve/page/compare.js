// An item enlarged, beside what it is compared with.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";
import { $, bits, bitsOfItem, details, element, hasPicture, labelOf, likeness, nameOf } from "/page/parts.js";
import { askItem } from "/page/query.js";
import { tellError } from "/page/messages.js";
import { state } from "/page/state.js";

const SHOWN_SIDE = 1024;
const ORIGINAL_SIDE = 4096;

let items = [];
let place = 0;
let beside = null;

// Open the dialog at one of some items. `other` is what they are compared with, {title, picture, code}, or null.
export function compare(list, at, other) {
  [items, place, beside] = [list, at, other];
  show();
  if (!$("compare").open) $("compare").showModal();
}

function half(title, shown, strip) {
  return element("figure", {}, ...[
    element("div", { class: "frame" }, ...[shown].filter(Boolean)),
    element("figcaption", { textContent: title, title }), strip,
  ].filter(Boolean));
}

function show() {
  const item = items[place];
  const name = nameOf(item.id, item.payload);
  const other = beside?.code ? draw.bitsOf(beside.code) : null;
  const code = bitsOfItem(item, other);
  const isShown = hasPicture(item.payload, state.stats);
  const enlarged = likeness(item, { size: SHOWN_SIDE, stats: state.stats, alt: name });
  const halves = [half(name, enlarged, code && draw.strip(code, other))];
  if (beside) halves.unshift(half(beside.title, beside.picture(), other && draw.strip(other, null)));
  $("compare-pair").replaceChildren(...halves);
  $("compare-title").textContent = beside && item.distance !== undefined ? `${bits(item.distance)} apart` : name;
  const rows = [["id", String(item.id)], ...details(item.payload)];
  const label = labelOf(item.payload);
  if (label) rows.unshift(label);
  if (item.embedding_distance !== undefined && item.embedding_distance !== null) {
    rows.unshift(["distance of the embeddings", item.embedding_distance.toFixed(4)]);
  }
  $("compare-details").replaceChildren(...rows.map(([field, text]) =>
    element("div", {}, element("dt", { textContent: field }), element("dd", { textContent: String(text) }))));
  $("compare").querySelector(".legend").hidden = !code || !other;
  $("compare-previous").disabled = place === 0;
  $("compare-next").disabled = place === items.length - 1;
  const link = $("compare-original");
  link.hidden = !isShown;
  if (isShown) link.href = api.pictureAddress(item.id, ORIGINAL_SIDE);
}

function step(by) {
  if (!items[place + by]) return;
  place += by;
  show();
}

$("compare-previous").addEventListener("click", () => step(-1));
$("compare-next").addEventListener("click", () => step(1));
$("compare-close").addEventListener("click", () => $("compare").close());
$("compare-search").addEventListener("click", () => {
  $("compare").close();
  askItem(items[place]);
});
$("compare-original").addEventListener("click", async (event) => {
  // A link cannot send a token.
  if (!api.hasToken()) return;
  event.preventDefault();
  try {
    window.open(await api.fetchedPicture(items[place].id, ORIGINAL_SIDE), "_blank", "noopener");
  } catch (error) {
    $("compare").close();
    tellError(error);
  }
});
$("compare").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  step(by);
});
// A press beside the dialog closes it.
$("compare").addEventListener("click", (event) => { if (event.target === $("compare")) $("compare").close(); });
