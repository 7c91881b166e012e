// Calls of the service. The `kind` of an error is the service's word for what went wrong.

const TOKEN_KEY = "hamtarget-token";

export class ServiceError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
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
  throw new ServiceError(response.status, told.kind, told.message);
}

export async function stats() {
  return fromJson(await (await call("/v1/stats")).text());
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
  const headers = { "Content-Type": "application/json" };
  return fromJson(await (await call(`/v1/${verb}`, { method: "POST", headers, body: toJson(request), signal })).text());
}

function itemPath(id) {
  const kind = typeof id === "string" ? "?kind=string" : "?kind=integer";
  return [`/v1/items/${encodeURIComponent(id)}`, kind];
}

export async function item(id) {
  const [path, kind] = itemPath(id);
  return fromJson(await (await call(path + kind)).text());
}

// An <img> cannot send a token: where there is one, the picture is fetched and shown from memory.
export async function showPicture(img, id, size) {
  const [path, kind] = itemPath(id);
  const url = `${path}/image${kind}&size=${size}`;
  if (!hasToken()) {
    img.src = url;
    return;
  }
  const blob = await (await call(url)).blob();
  img.src = URL.createObjectURL(blob);
  img.addEventListener("load", () => URL.revokeObjectURL(img.src), { once: true });
}
