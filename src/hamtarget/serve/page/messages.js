// What the page tells people: what to do next, and what went wrong.

import { $, button, element } from "/page/parts.js";
import { state } from "/page/state.js";

export function say(title, text, { error = false, actions = [] } = {}) {
  const message = $("message");
  message.className = error ? "message error" : "message";
  message.setAttribute("role", error ? "alert" : "status");
  const parts = [element("strong", { textContent: title })];
  if (text) parts.push(element("p", {}, ...[text].flat()));
  if (actions.length) parts.push(element("div", { class: "row" }, ...actions.map(([label, action]) => button(label, action))));
  message.replaceChildren(...parts);
}

export function hush() {
  $("message").replaceChildren();
}

export function askToken() {
  say("A token is needed", "Ask whoever started this service.", { actions: [["Enter the token", askToken]] });
  const dialog = $("token-dialog");
  if (!dialog.open) dialog.showModal();
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

// Title, text, and whether the same may work again.
function meaning(error, { isFile }) {
  const told = sentence(error.message);
  const wait = error.retryAfter > 1 ? `in ${error.retryAfter} seconds` : "in a moment";
  switch (error.kind) {
    case "unreachable":
      return navigator.onLine
        ? ["The service does not answer", "It may have ended. Start it with hamtarget serve, then try again.", true]
        : ["You are offline", "This device has no network. Connect it, then try again.", true];
    case "role": return ["This token may not do that", told];
    case "read_only": return ["This service takes no changes", told];
    case "too_large": return ["That file is too large", `${told} Choose a smaller one.`];
    case "too_much": return ["That is too much for one search", told];
    case "too_busy": return ["Too many of your requests at once", `Others are served meanwhile. Try again ${wait}.`, true];
    case "busy": return ["The service is busy", `${told} Try again ${wait}.`, true];
    case "not_ready": return ["The service is not ready", told, true];
    case "deadline": return ["That took too long", told, true];
    case "not_installed": return ["The service lacks a package", told];
    case "storage": return ["The disk of the service is full", told];
    case "host": return ["The service does not know this address", told];
    case "not_found": return ["There is no such item", "It may have been deleted. Check the id, or drop an image instead."];
    default:
  }
  if (isFile && error.status === 422) {
    if (/encoder/.test(error.message)) return ["This store takes no images", told];
    if (/pixels/.test(error.message)) return ["That image is too large", told];
    return ["That file cannot be read", `${told} Choose another image: JPEG, PNG, WebP, GIF, BMP or TIFF.`];
  }
  if (error.status >= 500) return ["The service failed", told, true];
  return ["That did not work", told];
}

export function tellError(error, again) {
  if (error.name === "AbortError") return;
  if (error.status === 401) {
    askToken();
    return;
  }
  if (!error.kind) throw error;
  const [title, text, mayWork = false] = meaning(error, { isFile: Boolean(state.query?.file) });
  say(title, text, { error: true, actions: mayWork && again ? [["Try again", again]] : [] });
}
