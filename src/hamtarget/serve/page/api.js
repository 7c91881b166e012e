// Calls of the service. The `kind` of an error is the service's word for what went wrong.

const TOKEN_KEY = "hamtarget-token";

export class ServiceError extends Error {
  constructor(status, kind, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.retryAfter = retryAfter;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN_KEY));
}

// Ids have 64 bits, numbers of JavaScript 53: larger ids are kept as BigInt, both ways.
function fromJson(text) {
  return JSON.parse(text, (key, value, { source } = {}) =>
    (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source ?? "") ? BigInt(source) : value));
}

export function toJson(value) {
  return JSON.stringify(value, (key, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each));
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, "unreachable", "The service does not answer.");
  }
  if (response.ok) return response;
  let told = { kind: "internal", message: `The service answered ${response.status}.` };
  try {
    told = (await response.json()).error;
  } catch {
    // Not a refusal of the service itself: tell the status only.
  }
  throw new ServiceError(response.status, told.kind, told.message, Number(response.headers.get("Retry-After")) || 0);
}

async function get(path) {
  return fromJson(await (await call(path)).text());
}

async function post(path, content, signal) {
  const headers = { "Content-Type": "application/json" };
  return fromJson(await (await call(path, { method: "POST", headers, body: toJson(content), signal })).text());
}

export function stats() {
  return get("/v1/stats");
}

export function groups(request, signal) {
  return post("/v1/groups", request, signal);
}

export function groupMembers(request) {
  return post("/v1/groups/members", request);
}

export function map(n) {
  return get(`/v1/map?n=${n}`);
}

export async function openapi() {
  return (await call("/openapi.json")).json();
}

export async function search(verb, request, { file = null, signal } = {}) {
  if (file) {
    const form = new FormData();
    form.append("request", toJson(request));
    form.append("image", file, "query");
    return fromJson(await (await call(`/v1/${verb}`, { method: "POST", body: form, signal })).text());
  }
  return post(`/v1/${verb}`, request, signal);
}

function itemPath(id) {
  const kind = typeof id === "string" ? "?kind=string" : "?kind=integer";
  return [`/v1/items/${encodeURIComponent(id)}`, kind];
}

export function item(id) {
  return get(itemPath(id).join(""));
}

export async function remove(id) {
  await call(itemPath(id).join(""), { method: "DELETE" });
}

export function pictureAddress(id, size) {
  const [path, kind] = itemPath(id);
  return `${path}/image${kind}&size=${size}`;
}

// The address of a picture for a link or an <img>. These cannot send a token: where there is one, the picture is
// fetched first, and the address is that of the copy in memory.
export async function fetchedPicture(id, size) {
  const address = pictureAddress(id, size);
  return hasToken() ? URL.createObjectURL(await (await call(address)).blob()) : address;
}

export async function showPicture(img, id, size) {
  img.src = hasToken() ? await fetchedPicture(id, size) : pictureAddress(id, size);
  if (img.src.startsWith("blob:")) img.addEventListener("load", () => URL.revokeObjectURL(img.src), { once: true });
}
