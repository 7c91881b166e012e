// The query: a picture, several at once, an id, a text or a code.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";
import { say, tellError } from "/page/messages.js";
import { $, element, hasPicture, milliseconds, nameOf, smallen, textOf } from "/page/parts.js";
import { clear, run, stop } from "/page/results.js";
import { shrink, thumbnail } from "/page/shrink.js";
import { remember, state, takesImages, takesTexts } from "/page/state.js";
import { show as showView } from "/page/views.js";

const MOST_FILES = 24;

// The picture of a query, or its code as a pattern; null where neither is known.
export function queryPicture(query, size = 256) {
  const pattern = () => (query.code ? draw.glyph(draw.bitsOf(query.code)) : null);
  const text = query.text ?? textOf(query.payload)?.[1];
  if (text && !query.picture) return element("span", { class: "excerpt", textContent: text });
  if (!query.url && !query.picture) return pattern();
  const img = element("img", { class: "picture", alt: "The query" });
  smallen(img);
  // A file that is no image cannot be shown.
  img.addEventListener("error", () => { const other = pattern(); if (other) img.replaceWith(other); else img.remove(); });
  if (query.url) img.src = query.url;
  else api.showPicture(img, query.id, size).catch(() => img.remove());
  return img;
}

export function showQuery() {
  const { query } = state;
  $("drop-hint").hidden = Boolean(query);
  $("query-view").hidden = !query;
  if (!query) return;
  const said = element("div", { class: "said" }, element("div", { class: "name", textContent: query.title, title: query.title }));
  if (query.code) said.append(draw.strip(draw.bitsOf(query.code), null));
  if (query.encodeMs) said.append(element("div", { class: "fine", textContent: `encoded in ${milliseconds(query.encodeMs)} ms` }));
  // A text is its own title.
  const shown = query.text === undefined ? queryPicture(query) : null;
  $("query-view").replaceChildren(...[shown, said].filter(Boolean));
}

// Search from a query. Without `isNew`, the address is that of the query already.
export function ask(query, { isNew = true } = {}) {
  state.query = query;
  if (!state.together.includes(query)) state.together = [];
  state.view = "search";
  if (isNew) remember({ isNew });
  showView();
  showTabs();
  showQuery();
  return run({ isNew: true });
}

// Search from an item. One with several codes is searched by the first of them.
export async function askItem({ id, payload, code, codes }, how) {
  if (code === undefined && codes === undefined) {
    try {
      ({ payload, code, codes } = await api.item(id));
    } catch (error) {
      clear();
      tellError(error, () => askItem({ id }, how));
      return;
    }
  }
  const name = nameOf(id, payload);
  const first = codes ? { codes, code: codes[0], title: `${name}, first of ${codes.length} codes` } : { title: name };
  const asked = ask({ id, picture: hasPicture(payload, state.stats), payload, ...first }, how);
  window.scrollTo({ top: 0 });
  await asked;
}

export async function askFiles(files) {
  const given = [...files].slice(0, MOST_FILES);
  if (!given.length) return;
  stop();
  if (!takesImages()) {
    state.query = null;
    clear();
    showQuery();
    say("This store takes no images", state.stats?.input_shape
      ? takesTexts() ? "It takes texts: enter one." : "Its encoder takes vectors. Search by id or code, or send a vector to POST /v1/search."
      : "It holds codes without an encoder. Search by id or code.", { error: true });
    return;
  }
  const queries = given.map((file) => ({ file, url: URL.createObjectURL(file), title: file.name || "Pasted image" }));
  state.together = queries.length > 1 ? queries : [];
  await ask(queries[0]);
  if (files.length > MOST_FILES) say(`The first ${MOST_FILES} images were taken`, `There were ${files.length}.`);
}

// What is sent for a file, made when it is first asked for: a smaller picture, and one for links.
export async function prepare(query) {
  if (!query.file || query.sent) return;
  [query.sent, query.thumb] = await Promise.all([shrink(query.file), thumbnail(query.file)]);
}

export async function askText(text, how) {
  stop();
  if (text.length === state.stats.n_bits / 4 && /^[0-9a-f]+$/i.test(text)) {
    await ask({ code: text.toLowerCase(), title: "Code" }, how);
    return;
  }
  // What has a space in it is hardly an id; anything else may be one.
  if (takesTexts() && /\s/.test(text)) {
    await ask({ text, title: text }, how);
    return;
  }
  const ids = [text];
  // Digits are taken for an integer first, then for a string.
  if (/^-?\d{1,19}$/.test(text)) ids.unshift(Number.isSafeInteger(Number(text)) ? Number(text) : BigInt(text));
  for (const id of ids) {
    try {
      const found = await api.item(id);
      await askItem(found, how);
      return;
    } catch (error) {
      if (error.status === 404 && id !== ids.at(-1)) continue;
      if (error.status === 404 && takesTexts()) {
        await ask({ text, title: text }, how);
        return;
      }
      clear();
      tellError(error, () => askText(text, how));
      return;
    }
  }
}

// The query of an address: its item is read first.
export async function askAgain(query) {
  const how = { isNew: false };
  if (query.id === undefined || query.title) await ask(query, how);
  else await askItem(query, how);
}

export function askExample() {
  const { examples } = state.stats;
  const others = examples.filter((id) => id !== state.query?.id);
  return askText(String((others.length ? others : examples)[Math.floor(Math.random() * (others.length || 1))]));
}

// --- several queries -----------------------------------------------------------------------------------------------

function showTabs() {
  const { together } = state;
  $("tabs").hidden = !together.length;
  $("tabs").replaceChildren(...together.map((query) => {
    const isShown = query === state.query;
    const img = element("img", { alt: "" });
    img.src = query.url;
    img.addEventListener("error", () => img.remove());
    return element("button", {
      type: "button", role: "tab", class: "tab", title: query.title, tabIndex: isShown ? 0 : -1,
      "aria-selected": String(isShown), "aria-controls": "hits", onclick: () => ask(query),
    }, img, element("span", { textContent: query.title }));
  }));
}

$("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const { together } = state;
  const next = together[together.indexOf(state.query) + (step ?? 0)];
  if (!step || !next) return;
  event.preventDefault();
  ask(next);
  $("tabs").querySelector("[aria-selected=true]").focus();
});
