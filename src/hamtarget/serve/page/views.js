// The three views: which of them is shown.

import { $ } from "/page/parts.js";
import { state } from "/page/state.js";

const VIEWS = ["search", "duplicates", "map"];

export function show() {
  for (const view of VIEWS) {
    $(`view-${view}`).hidden = view !== state.view;
    const link = $("views").querySelector(`[data-view=${view}]`);
    if (view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = { search: state.query?.title ?? "search by code", duplicates: "duplicates", map: "map" }[state.view];
  document.title = `${title} - hamtarget`;
  // There is one place for messages, in the view that is shown.
  const here = $(`view-${state.view}`).querySelector(".messages");
  if (!here.contains($("message"))) {
    $("message").replaceChildren();
    here.append($("message"));
  }
}
