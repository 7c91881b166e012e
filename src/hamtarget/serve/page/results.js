// The results: the nearest items, or those within a radius, as cards.

import * as api from "/page/api.js";
import { compare } from "/page/compare.js";
import * as draw from "/page/draw.js";
import { forgetAnswer, showAnswer } from "/page/figures.js";
import { hush, say, tellError } from "/page/messages.js";
import { $, bits, bitsOfItem, button, count, details, element, hasPicture, labelOf, likeness, nameOf, textOf } from "/page/parts.js";
import { askItem, prepare, queryPicture, showQuery } from "/page/query.js";
import { LIMITS, remember, state } from "/page/state.js";

const SETTLE_MS = 40;
const SKELETONS = 12;
const MOST_HITS = 5000;

let running = null;
let timer = null;
let answer = null;
let shown = [];
// Values of labels by their texts, as far as they were seen, and the field that holds them.
const labels = new Map();
let labelField = null;

// --- searching -----------------------------------------------------------------------------------------------------

// Drop a search that is under way: its answer must not replace what is said next.
export function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  busy(false);
}

// A slider changes faster than browsers let the address change.
function runSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => { remember(); run(); }, SETTLE_MS);
}

function busy(is) {
  $("progress").hidden = !is;
  $("hits").setAttribute("aria-busy", String(is));
  if (is && !shown.length) {
    $("hits").replaceChildren(...Array.from({ length: SKELETONS }, () => element("li", { class: "skeleton" })));
  }
}

function requestOf(query) {
  const { stats, radius, limit, label } = state;
  const request = radius === null ? { k: limit } : { radius, limit };
  request.ties = "mixed";
  request.codes = true;
  request.histogram = $("figures").open;
  if (label) request.filter = { [label.field]: label.value };
  // The nearest vectors are found from the item itself, not from its code.
  const findsVectors = stats.advised === "nearest" && radius === null && !query.codes;
  // Once the code is known, the image need not be encoded again.
  if (query.code && !(findsVectors && (query.id !== undefined || query.text !== undefined))) {
    request.code = query.code;
    if (stats.embedding && query.embedding) request.embedding = query.embedding;
  } else if (query.text !== undefined) request.text = query.text;
  else if (query.id !== undefined) request.id = query.id;
  return request;
}

// Search, and show what is found; `focus`: go to the first hit that was not there before.
export async function run({ isNew = false, focus = false } = {}) {
  const { query } = state;
  if (!query) return;
  stop();
  const controller = new AbortController();
  running = controller;
  if (isNew) forget();
  busy(true);
  try {
    await prepare(query);
    if (running !== controller) return;
    const verb = state.radius === null ? "nearest" : "search";
    const request = requestOf(query);
    const file = query.file && !query.code ? query.sent : null;
    const found = await api.search(verb, request, { file, signal: controller.signal });
    if (running !== controller) return;
    if (!query.code) {
      query.code = found.code;
      query.embedding = found.embedding;
      query.encodeMs = found.took.encode_ms;
      showQuery();
      remember();
    }
    answer = found;
    show({ focus });
    if (!found.hits.length) await tellNothing(query, controller.signal);
  } catch (error) {
    if (running !== controller || error.name === "AbortError") return;
    clear();
    tellError(error, run);
  } finally {
    if (running === controller) busy(false);
  }
}

async function tellNothing(query, signal) {
  const actions = [];
  if (state.label) actions.push([`Search without the label ${state.label.value}`, () => setLabel("")]);
  let text = "Raise the radius to search further.";
  if (state.radius !== null && state.stats.items) {
    const nearest = await api.search("nearest", { code: query.code, k: 1, payload: false }, { signal });
    const far = nearest.hits[0]?.distance;
    if (far !== undefined) text = `The nearest item is ${bits(far)} away.`;
    actions.push(["Show the nearest", () => setRadius(null)]);
  }
  say(state.radius === null ? "Nothing found" : `Nothing within ${bits(state.radius)}`, text, { actions });
}

// --- filters -------------------------------------------------------------------------------------------------------

export function showFilters() {
  const { radius, limit, label, stats } = state;
  $("within").checked = radius !== null;
  $("radius").max = Math.floor(stats.n_bits / 2);
  $("radius").value = radius ?? stats.radius;
  $("radius-text").textContent = radius === null ? "any distance" : bits(radius);
  if (![...$("limit").options].some((each) => Number(each.value) === limit)) {
    $("limit").append(element("option", { textContent: limit }));
  }
  $("limit").value = limit;
  $("order").value = state.order;
  $("label").value = label?.value ?? "";
  $("label-field").hidden = !labels.size && !label;
  const said = [radius !== null && `within ${bits(radius)}`, label && `label ${label.value}`].filter(Boolean);
  $("filters-said").textContent = said.join(", ");
}

function changed({ soon = false } = {}) {
  showFilters();
  if (soon) {
    runSoon();
    return;
  }
  remember();
  run();
}

export function setRadius(radius) {
  state.radius = radius;
  changed({ soon: true });
}

export function setLimit(limit) {
  state.limit = limit;
  changed();
}

export function setLabel(text) {
  state.label = text ? { field: labelField ?? "label", value: labels.get(text) ?? text } : null;
  changed();
}

function noteLabels(hits) {
  const before = labels.size;
  for (const { payload } of hits) {
    const told = labelOf(payload);
    if (!told) continue;
    labelField ??= told[0];
    if (told[0] === labelField) labels.set(String(told[1]), told[1]);
  }
  if (labels.size === before) return;
  $("labels").replaceChildren(...[...labels.keys()].sort().map((value) => element("option", { value })));
  $("label-field").hidden = false;
}

// --- the answer ----------------------------------------------------------------------------------------------------

function forget() {
  answer = null;
  shown = [];
  $("more").hidden = true;
  forgetAnswer();
}

// Show no results.
export function clear() {
  stop();
  forget();
  $("results-title").textContent = "Results";
  $("hits").replaceChildren();
}

function title() {
  const { hits, truncated, radius } = answer;
  const which = state.label ? ` labelled ${state.label.value}` : "";
  if (!hits.length) return "Results";
  if (radius === null) return `The ${count.format(hits.length)} nearest${which}`;
  return `${truncated ? "The first " : ""}${count.format(hits.length)}${which} within ${bits(radius)}`;
}

export function show({ focus = false } = {}) {
  if (!answer) return;
  hush();
  $("results-title").textContent = title();
  showAnswer(answer);
  noteLabels(answer.hits);
  const hits = [...answer.hits];
  if (state.order === "embedding") hits.sort((a, b) => (a.embedding_distance ?? 0) - (b.embedding_distance ?? 0));
  const code = draw.bitsOf(answer.code);
  // Cards that are there already stay: the keyboard's focus does, too.
  const same = shown.length && shown.length <= hits.length && shown.every((hit, place) =>
    hit.id === hits[place].id && hit.distance === hits[place].distance);
  const first = same ? shown.length : 0;
  const cards = hits.slice(first).map((hit, place) => element("li", {}, card(hit, code, () => openHit(first + place))));
  const inside = $("hits").contains(document.activeElement);
  if (same) $("hits").append(...cards);
  else $("hits").replaceChildren(...cards);
  shown = hits;
  markFar();
  if (focus && cards[0]) cards[0].querySelector("button").focus();
  else if (inside && !same) $("hits").querySelector("button")?.focus({ preventScroll: true });
  showMore();
}

// A line before the first hit beyond the store's radius: what follows is near, but not a match.
function markFar() {
  $("hits").querySelector(".divider")?.remove();
  const { radius, advised } = state.stats;
  if (state.radius !== null || advised !== "search" || state.order !== "distance") return;
  const far = shown.findIndex((hit) => hit.distance > radius);
  if (far < 0) return;
  const text = far ? `Farther than ${bits(radius)}, the store's radius` : `Nothing within ${bits(radius)}, the store's radius; these are the nearest`;
  $("hits").children[far].before(element("li", { class: "divider", textContent: text }));
}

function openHit(place) {
  compare(shown, place, { title: state.query.title, picture: () => queryPicture(state.query, 1024), code: answer.code });
}

function showMore() {
  const isWhole = answer.radius === null ? answer.hits.length < state.limit : !answer.truncated;
  $("more").hidden = isWhole || state.limit >= MOST_HITS;
  if ($("more").hidden) return;
  const next = Math.min(MOST_HITS, LIMITS.find((each) => each > state.limit) ?? 2 * state.limit);
  $("more").replaceChildren(button("Show more", () => {
    state.limit = next;
    showFilters();
    remember();
    run({ focus: true });
  }));
}

// A hit: its picture, which opens the comparison, and a way to search from it.
export function card(hit, queryBits, onopen) {
  const code = bitsOfItem(hit, queryBits);
  const name = nameOf(hit.id, hit.payload);
  const label = labelOf(hit.payload)?.[1];
  const said = [name, label, queryBits ? `${bits(hit.distance)} away` : null].filter((each) => each !== null && each !== undefined);
  const text = hasPicture(hit.payload, state.stats) ? null : textOf(hit.payload)?.[0];
  const more = details(hit.payload).filter(([field]) => field !== text).map(([field, text]) => `${field}: ${text}`).join(" · ");
  const open = element("button", { type: "button", class: "open", "aria-label": `${said.join(", ")}. Enlarge.`, onclick: onopen });
  open.append(likeness(hit, { size: 256, stats: state.stats }));
  const made = element("article", { class: "hit" }, open);
  made.dataset.id = String(hit.id);
  if (queryBits) {
    const line = element("div", { class: "line" }, element("span", { class: "distance", textContent: bits(hit.distance) }));
    if (hit.embedding_distance !== undefined && hit.embedding_distance !== null) {
      line.append(element("span", {
        class: "closeness", title: "Distance of the embeddings", textContent: hit.embedding_distance.toFixed(3),
      }));
    }
    made.append(line);
  }
  if (code) made.append(draw.strip(code, queryBits));
  made.append(element("div", { class: "name", textContent: name, title: name }));
  if (label !== undefined) made.append(element("div", { class: "label", textContent: label, title: String(label) }));
  if (more) made.append(element("div", { class: "payload", textContent: more, title: more }));
  made.append(element("button", {
    type: "button", class: "from", textContent: "Search from it", "aria-label": `Search from ${name}`,
    onclick: () => askItem(hit),
  }));
  return made;
}

// Items to begin with, before the first query.
export async function showExamples() {
  const found = await Promise.all(state.stats.examples.map((id) => api.item(id).catch(() => null)));
  if (state.query) return;
  const items = found.filter(Boolean);
  noteLabels(items);
  $("results-title").textContent = "Some items of the store";
  $("hits").replaceChildren(...items.map((item, place) =>
    element("li", {}, card(item, null, () => compare(items, place, null)))));
}

// Arrow keys walk through the grid.
$("hits").addEventListener("keydown", (event) => {
  const cards = [...$("hits").querySelectorAll(".open")];
  const place = cards.indexOf(document.activeElement);
  const columns = getComputedStyle($("hits")).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (place >= 0 && step && cards[place + step]) {
    event.preventDefault();
    cards[place + step].focus();
  }
});
