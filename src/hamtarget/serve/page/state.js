// What the page shows, and the address that keeps it: a link to the page leads to the same view.

import { thumbnailAddress } from "/page/shrink.js";

export const LIMITS = [24, 48, 96, 192];

export const state = {
  stats: null,
  view: "search",
  // {title, code, embedding} and one of `file`, `id`, `text`, `code`; null before the first query.
  query: null,
  // Queries of several files at once, each with its own result.
  together: [],
  // Bits; null: the nearest, however far.
  radius: null,
  limit: LIMITS[0],
  // {field, value} of the payload; null: any.
  label: null,
  order: "distance",
  // Of groups of duplicates; the store's radius by default.
  groups: { radius: null, linkage: "single" },
};

const MOST_CHARACTERS = 8000;
const MOST_NUMBERS = 512;

function toBase64(content) {
  return btoa(String.fromCharCode(...content)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function fromBase64(text) {
  if (!text || text.length > MOST_CHARACTERS) return null;
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
}

// All queries of this visit, with their pictures; the browser's history holds their places.
const asked = [];

function addressOf() {
  const said = new URLSearchParams();
  const { query } = state;
  if (state.view !== "search") said.set("view", state.view);
  if (query?.id !== undefined) {
    said.set("id", String(query.id));
    if (typeof query.id !== "string") said.set("kind", "integer");
  } else if (query?.text !== undefined) said.set("text", query.text);
  else if (query?.code) {
    // The code finds the same items again; a small picture is kept to recognise it by.
    said.set("code", query.code);
    if (query.title) said.set("name", query.title);
    if (query.thumb) said.set("picture", toBase64(query.thumb));
    // It decides ties. Where it is long, the link does without.
    if (query.embedding?.length <= MOST_NUMBERS) said.set("embedding", toBase64(new Uint8Array(Float32Array.from(query.embedding).buffer)));
  }
  if (state.radius !== null) said.set("radius", state.radius);
  if (state.order !== "distance") said.set("order", state.order);
  if (state.groups.radius !== null) said.set("groups", state.groups.radius);
  if (state.groups.linkage !== "single") said.set("linkage", state.groups.linkage);
  if (state.limit !== LIMITS[0]) said.set("limit", state.limit);
  if (state.label) {
    said.set("field", state.label.field);
    said.set(typeof state.label.value === "number" ? "number" : "label", state.label.value);
  }
  return `#${said}`;
}

export function remember({ isNew = false } = {}) {
  if (isNew) history.pushState({ place: state.query ? asked.push(state.query) - 1 : null }, "", addressOf());
  else history.replaceState(history.state, "", addressOf());
}

function integer(text, least, most) {
  return /^\d{1,5}$/.test(text ?? "") && Number(text) >= least && Number(text) <= most ? Number(text) : null;
}

// Take what the address says; return the query that is to be asked, or null.
export function restore(place) {
  const said = new URLSearchParams(location.hash.slice(1));
  state.view = ["duplicates", "map"].includes(said.get("view")) ? said.get("view") : "search";
  state.radius = integer(said.get("radius"), 0, state.stats.n_bits - 1);
  state.limit = integer(said.get("limit"), 1, 10_000) ?? LIMITS[0];
  state.order = said.get("order") === "embedding" ? "embedding" : "distance";
  state.groups = {
    radius: integer(said.get("groups"), 0, state.stats.n_bits - 1),
    linkage: said.get("linkage") === "representative" ? "representative" : "single",
  };
  const [number, field] = [Number(said.get("number")), said.get("field") ?? "label"];
  const value = said.get("label") ?? (said.has("number") && Number.isFinite(number) ? number : null);
  state.label = value === null ? null : { field, value };
  if (asked[place]) return asked[place];
  if (said.has("id")) {
    const id = said.get("id");
    const isNumber = said.get("kind") === "integer" && /^-?\d{1,19}$/.test(id);
    return { id: !isNumber ? id : Number.isSafeInteger(Number(id)) ? Number(id) : BigInt(id) };
  }
  if (said.has("text")) return { text: said.get("text"), title: said.get("text") };
  if (new RegExp(`^[0-9a-f]{${state.stats.n_bits / 4}}$`).test(said.get("code") ?? "")) {
    const thumb = safely(() => fromBase64(said.get("picture")));
    const embedding = safely(() => [...new Float32Array(fromBase64(said.get("embedding")).buffer)]);
    return { code: said.get("code"), title: said.get("name") || "Code", embedding, thumb, url: thumb && thumbnailAddress(thumb) };
  }
  return null;
}

function safely(make) {
  try {
    return make();
  } catch {
    return null;
  }
}

// A store of texts has inputs without a shape.
export function takesTexts() {
  return state.stats?.input_shape?.length === 0;
}

export function takesImages() {
  return (state.stats?.input_shape?.length ?? 0) >= 2;
}
