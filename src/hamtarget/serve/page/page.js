// The page: a query, the items within a radius of it, and the cost of finding them.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";
import { $, bits, card, count, element, milliseconds, nameOf, showHistogram, showStats, smallen } from "/page/parts.js";

const SETTLE_MS = 40;
const SKELETONS = 12;
const FEW_HITS = 6;

const state = {
  stats: null,
  // {title, code, embedding} and one of `file`, `id`, `code`; null before the first query.
  query: null,
  radius: 2,
  answer: null,
};
// All queries of this visit, with their images; the browser's history holds their places.
const asked = [];
let running = null;
let timer = null;

// --- messages ------------------------------------------------------------------------------------------------------

function say(title, text, { error = false, actions = [] } = {}) {
  const message = $("message");
  message.className = error ? "message error" : "message";
  message.setAttribute("role", error ? "alert" : "status");
  const parts = [element("strong", { textContent: title })];
  if (text) parts.push(element("p", {}, ...[text].flat()));
  if (actions.length) {
    parts.push(element("div", { class: "row" }, ...actions.map(([label, action]) =>
      element("button", { type: "button", class: "button", textContent: label, onclick: action }))));
  }
  message.replaceChildren(...parts);
}

function hush() {
  $("message").replaceChildren();
}

function tellError(error) {
  if (error.name === "AbortError") return;
  $("hits").replaceChildren();
  forget();
  if (error.status === 401) {
    askToken();
    return;
  }
  const again = [["Try again", () => begin()]];
  if (error.kind === "unreachable") {
    say("The service does not answer", "It may have ended. Start it with hamtarget serve, then try again.",
      { error: true, actions: again });
  } else if (error.kind === "busy") {
    say("The service is busy", "Too many requests are waiting. Try again in a moment.", { error: true, actions: again });
  } else if (error.kind === "too_large") {
    say("That file is too large", `${error.message}. Choose a smaller image.`, { error: true });
  } else if (state.query?.file) {
    say("That file cannot be read", [`${error.message}. `, "Choose another image: JPEG, PNG, WebP, GIF, BMP or TIFF."],
      { error: true });
  } else if (error.kind === "not_found") {
    say("There is no such item", "Check the id, or drop an image instead.", { error: true });
  } else {
    say("That did not work", error.message, { error: true, actions: error.status >= 500 ? again : [] });
  }
}

function askToken() {
  say("A token is needed", "Ask whoever started this service.", { actions: [["Enter the token", askToken]] });
  const dialog = $("token-dialog");
  if (!dialog.open) dialog.showModal();
}

// --- the query -----------------------------------------------------------------------------------------------------

function showQuery() {
  const view = $("query-view");
  const { query } = state;
  $("drop-hint").hidden = Boolean(query);
  view.hidden = !query;
  if (!query) return;
  const parts = [];
  if (query.file) {
    const img = element("img", { alt: "The query" });
    img.src = query.url;
    smallen(img);
    // A file that is no image cannot be shown.
    img.addEventListener("error", () => img.remove());
    parts.push(img);
  } else if (query.picture) {
    const img = element("img", { alt: "The query" });
    smallen(img);
    api.showPicture(img, query.id, 256).catch(() => img.remove());
    parts.push(img);
  } else if (query.code) {
    parts.push(draw.glyph(draw.bitsOf(query.code)));
  }
  parts.push(element("div", { class: "name", textContent: query.title }));
  if (query.code) parts.push(draw.strip(draw.bitsOf(query.code), null));
  if (query.encodeMs) {
    parts.push(element("div", { class: "fine", textContent: `encoded in ${milliseconds(query.encodeMs)} ms` }));
  }
  view.replaceChildren(...parts);
}

function ask(query, { remember = true } = {}) {
  state.query = query;
  if (remember) {
    const place = asked.push(query) - 1;
    history.pushState({ place }, "", query.file ? "#image" : `#${encodeURIComponent(query.id ?? query.text ?? query.code)}`);
  }
  showQuery();
  run();
}

function askFile(file) {
  if (!file) return;
  stop();
  if (!state.stats?.input_shape || state.stats.input_shape.length < 2) {
    state.query = null;
    $("hits").replaceChildren();
    say("This store takes no images", state.stats?.input_shape
      ? takesTexts() ? "It takes texts: enter one below." : "Its encoder takes vectors. Search by id or code, or send a vector to POST /v1/search."
      : "It holds codes without an encoder. Search by id or code.", { error: true });
    return;
  }
  ask({ file, url: URL.createObjectURL(file), title: file.name || "Pasted image" });
}

function askItem(id, payload) {
  const picture = state.stats.images && typeof payload?.image === "string";
  ask({ id, picture, title: nameOf(id, payload) });
  // Scroll to the answer: on a narrow screen it lies below the query.
  if (matchMedia("(max-width: 760px)").matches) $("answer").scrollIntoView({ block: "start" });
  else window.scrollTo({ top: 0 });
}

// A store of texts has inputs without a shape.
function takesTexts() {
  return state.stats?.input_shape?.length === 0;
}

async function askText(text) {
  stop();
  const nibbles = state.stats.n_bits / 4;
  if (text.length === nibbles && /^[0-9a-f]+$/i.test(text)) {
    ask({ code: text.toLowerCase(), title: "Code" });
    return;
  }
  // What has a space in it is hardly an id; anything else may be one.
  if (takesTexts() && /\s/.test(text)) {
    ask({ text, title: text });
    return;
  }
  const ids = [text];
  // Digits are taken for an integer first, then for a string.
  if (/^-?\d{1,19}$/.test(text)) ids.unshift(Number.isSafeInteger(Number(text)) ? Number(text) : BigInt(text));
  for (const id of ids) {
    try {
      const found = await api.item(id);
      askItem(id, found.payload);
      return;
    } catch (error) {
      if (error.status === 404 && id !== ids.at(-1)) continue;
      if (error.status === 404 && takesTexts()) ask({ text, title: text });
      else tellError(error);
      return;
    }
  }
}

function example() {
  const { examples } = state.stats;
  const others = examples.filter((id) => id !== state.query?.id);
  askText(String((others.length ? others : examples)[Math.floor(Math.random() * (others.length || 1))]));
}

// Items to begin with, before the first query.
async function showExamples() {
  const found = await Promise.all(state.stats.examples.map((id) => api.item(id).catch(() => null)));
  if (state.query) return;
  const cards = found.filter(Boolean).map((item) => element("li", {}, hitCard(item, null)));
  $("results-title").textContent = "Some items of the store";
  $("hits").replaceChildren(...cards);
}

// --- searching -----------------------------------------------------------------------------------------------------

// Drop a search that is under way: its answer must not replace what is said next.
function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  busy(false);
}

function runSoon() {
  clearTimeout(timer);
  timer = setTimeout(run, SETTLE_MS);
}

async function run() {
  const { query } = state;
  if (!query) return;
  running?.abort();
  const controller = new AbortController();
  running = controller;
  busy(true);
  try {
    const ranked = Boolean(state.stats.embedding);
    const request = {
      radius: state.radius, limit: Number($("limit").value), codes: true, histogram: true,
    };
    if (ranked) request.rerank = request.limit;
    let file = null;
    // Once the query's code and embedding are known, the image need not be encoded again.
    if (query.code) {
      request.code = query.code;
      if (ranked && query.embedding) request.embedding = query.embedding;
      else if (ranked) delete request.rerank;
    } else if (query.file) {
      file = query.file;
    } else if (query.text) {
      request.text = query.text;
    } else {
      request.id = query.id;
    }
    const answer = await api.search("search", request, { file, signal: controller.signal });
    if (running !== controller) return;
    if (!query.code) {
      query.code = answer.code;
      query.embedding = answer.embedding;
      query.encodeMs = answer.took.encode_ms;
      showQuery();
    }
    state.answer = answer;
    show();
    if (!answer.hits.length) await tellNothing(query, controller.signal);
  } catch (error) {
    tellError(error);
  } finally {
    if (running === controller) busy(false);
  }
}

function busy(is) {
  $("progress").hidden = !is;
  $("hits").setAttribute("aria-busy", String(is));
  if (is && !$("hits").children.length && !state.answer) {
    $("hits").replaceChildren(...Array.from({ length: SKELETONS }, () => element("li", { class: "skeleton" })));
  }
}

async function tellNothing(query, signal) {
  const actions = [];
  let text = "Raise the radius to search further.";
  if (state.stats.items) {
    const nearest = await api.search("nearest", { code: query.code, k: 1, payload: false }, { signal });
    const far = nearest.hits[0]?.distance;
    if (far !== undefined) {
      text = `The nearest item is ${bits(far)} away.`;
      actions.push([`Search within ${bits(far)}`, () => setRadius(far)]);
    }
  }
  say(`Nothing within ${bits(state.radius)}`, text, { actions });
}

// --- the answer ----------------------------------------------------------------------------------------------------

function forget() {
  state.answer = null;
  $("answer").hidden = true;
  $("legend").hidden = true;
  $("more").hidden = true;
  $("results-title").textContent = "Results";
}

function figure(id, value, unit) {
  $(id).replaceChildren(value, ...(unit ? [element("small", { textContent: ` ${unit}` })] : []));
}

function show() {
  const { answer } = state;
  hush();
  $("answer").hidden = false;
  $("legend").hidden = !answer.hits.length;
  const shown = count.format(answer.hits.length) + (answer.truncated ? "+" : "");
  figure("m-hits", shown);
  figure("m-time", milliseconds(answer.took.index_ms), "ms");
  figure("m-candidates", count.format(answer.cost.candidates));
  figure("m-comparisons", count.format(answer.cost.comparisons));
  $("results-title").textContent = answer.hits.length
    ? `${answer.truncated ? `The first ${answer.hits.length}` : shown} within ${bits(answer.radius)}`
    : "Results";
  if (answer.histogram) showHistogram(answer.histogram, answer.radius);
  const hits = [...answer.hits];
  if ($("order").value === "distance") {
    hits.sort((a, b) => a.distance - b.distance || (a.embedding_distance ?? 0) - (b.embedding_distance ?? 0));
  }
  const code = draw.bitsOf(answer.code);
  // Keep the keyboard's focus in the grid.
  const inside = $("hits").contains(document.activeElement);
  $("hits").replaceChildren(...hits.map((hit) => element("li", {}, hitCard(hit, code))));
  if (inside) $("hits").querySelector("button")?.focus({ preventScroll: true });
  showMore(answer);
}

function hitCard(hit, queryBits) {
  const onpress = () => askItem(hit.id, hit.payload);
  return card(hit, queryBits, { hasImages: state.stats.images, onpress });
}

// Where there are few hits, tell how far the next items are.
function showMore({ hits, histogram, radius }) {
  const next = histogram?.counts.findIndex((each, distance) => distance > radius && each) ?? -1;
  const few = hits.length > 0 && hits.length < FEW_HITS && next > 0 && next <= Number($("radius").max);
  $("more").hidden = !few;
  if (!few) return;
  $("more").replaceChildren(`The next item${histogram.sampled ? " of a sample" : ""} is ${bits(next)} away. `,
    element("button", { type: "button", class: "button", textContent: `Search within ${bits(next)}`, onclick: () => setRadius(next) }));
}

// --- the store -----------------------------------------------------------------------------------------------------

function setRadius(radius) {
  state.radius = Number(radius);
  $("radius").value = radius;
  $("radius-text").textContent = bits(state.radius);
  runSoon();
}

async function begin() {
  try {
    const first = state.stats === null;
    state.stats = await api.stats();
    showStats(state.stats);
    if (first) {
      $("radius").max = Math.floor(state.stats.n_bits / 2);
      // Codes that were made for probing have no radius of their own: begin as wide as the slider goes.
      setRadius(state.stats.advised !== "search" ? $("radius").max : state.stats.radius);
      $("order-label").hidden = !state.stats.embedding;
      $("legend-embedding").hidden = !state.stats.embedding;
    }
    const takesImages = (state.stats.input_shape?.length ?? 0) >= 2;
    $("pick-label").hidden = !takesImages;
    const means = takesTexts() ? "a text, an id or a code" : "an id or a code";
    if (!takesImages) {
      $("drop-hint").replaceChildren(element("p", { class: "big", textContent: `Search by ${means}` }));
      $("text").placeholder = means;
      $("text").labels[0].textContent = `The query: ${means}`;
    }
    $("demo").disabled = !state.stats.examples.length;
    if (state.query) run();
    else if (!state.stats.items) {
      say("This store is empty", ["Add items with ", element("code", { textContent: "hamtarget add STORE FOLDER" }),
        ", or try the bundled images with ", element("code", { textContent: "hamtarget serve --demo" }), "."]);
    } else if (location.hash.length > 1 && location.hash !== "#image") askText(decodeURIComponent(location.hash.slice(1)));
    else {
      say(takesImages ? "Drop an image to begin" : `Enter ${means} to begin`,
        "Or press one of these items to search from it; every hit can be pressed, too.");
      await showExamples();
    }
  } catch (error) {
    tellError(error);
  }
}

// --- events --------------------------------------------------------------------------------------------------------

$("radius").addEventListener("input", (event) => setRadius(event.target.value));
$("limit").addEventListener("change", run);
$("order").addEventListener("change", () => { if (state.answer?.hits.length) show(); });
$("demo").addEventListener("click", example);
$("pick").addEventListener("change", (event) => { askFile(event.target.files[0]); event.target.value = ""; });
$("by-text").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (text) askText(text);
});
$("token-dialog").addEventListener("close", () => {
  if (!$("token").value) return;
  api.setToken($("token").value);
  $("token").value = "";
  begin();
});

document.addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((each) => each.type.startsWith("image/"));
  if (file) { event.preventDefault(); askFile(file); }
});
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  askFile(event.dataTransfer.files[0]);
});
// Arrow keys walk through the grid.
$("hits").addEventListener("keydown", (event) => {
  const cards = [...$("hits").querySelectorAll("button")];
  const place = cards.indexOf(document.activeElement);
  const columns = getComputedStyle($("hits")).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (place >= 0 && step && cards[place + step]) {
    event.preventDefault();
    cards[place + step].focus();
  }
});
window.addEventListener("popstate", (event) => {
  const query = asked[event.state?.place];
  if (query) ask(query, { remember: false });
});

begin();
