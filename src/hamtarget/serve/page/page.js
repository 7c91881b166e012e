// The page: what it begins with, and what its controls do.

import * as api from "/page/api.js";
import { openDuplicates } from "/page/duplicates.js";
import { showStats } from "/page/figures.js";
import { openMap } from "/page/map.js";
import { say, tellError } from "/page/messages.js";
import { $, element } from "/page/parts.js";
import { askAgain, askExample, askFiles, askText, showQuery } from "/page/query.js";
import { clear, run, setLabel, setLimit, setRadius, show, showExamples, showFilters } from "/page/results.js";
import { remember, restore, state, takesImages, takesTexts } from "/page/state.js";
import { show as showView } from "/page/views.js";

const NARROW = "(max-width: 760px)";

async function begin() {
  try {
    state.stats = await api.stats();
    showStats(state.stats);
    showInputs();
    await go();
  } catch (error) {
    tellError(error, begin);
  }
}

// What the store can be asked with.
function showInputs() {
  $("order-label").hidden = !state.stats.embedding;
  $("pick-label").hidden = !takesImages();
  const means = takesTexts() ? "a text, an id or a code" : "an id or a code";
  if (!takesImages()) {
    $("drop-hint").replaceChildren(element("p", { class: "big", textContent: `Search by ${means}` }));
    $("text").placeholder = means;
    $("text").labels[0].textContent = `The query: ${means}`;
  }
  $("demo").disabled = !state.stats.examples.length;
}

// Go where the address leads; `place` is that of a query of this visit.
async function go(place) {
  const query = restore(place);
  showFilters();
  showView();
  if (state.view === "duplicates") return openDuplicates();
  if (state.view === "map") return openMap();
  if (!state.stats.items) {
    return say("This store is empty", ["Add items with ", element("code", { textContent: "hamtarget add STORE FOLDER" }),
      ", or try the bundled images with ", element("code", { textContent: "hamtarget serve --demo" }), "."]);
  }
  if (query) return query === state.query ? run() : askAgain(query);
  state.query = null;
  showQuery();
  clear();
  say(takesImages() ? "Drop an image to begin" : `Enter ${takesTexts() ? "a text, an id or a code" : "an id or a code"} to begin`,
    "Or search from one of these items.");
  return showExamples();
}

// --- events --------------------------------------------------------------------------------------------------------

// Not by its address, which the page has a use for.
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $(state.view === "search" ? "results" : `view-${state.view}`).focus();
});
$("views").addEventListener("click", (event) => {
  const { view } = event.target.dataset;
  if (!view || !state.stats || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  if (view === state.view) return;
  state.view = view;
  remember({ isNew: true });
  go(history.state.place ?? undefined).catch((error) => tellError(error));
});
window.addEventListener("popstate", (event) => {
  if (state.stats) go(event.state?.place ?? undefined).catch((error) => tellError(error));
});

$("radius").addEventListener("input", (event) => setRadius(Number(event.target.value)));
$("within").addEventListener("change", (event) => setRadius(event.target.checked ? Number($("radius").value) : null));
$("label").addEventListener("change", (event) => setLabel(event.target.value.trim()));
$("limit").addEventListener("change", (event) => setLimit(Number(event.target.value)));
$("order").addEventListener("change", (event) => {
  state.order = event.target.value;
  remember();
  show();
});
// The histogram is counted only where it is seen.
$("figures").addEventListener("toggle", () => { if ($("figures").open) run(); });
$("demo").addEventListener("click", askExample);
$("pick").addEventListener("change", (event) => {
  const files = [...event.target.files];
  event.target.value = "";
  askFiles(files);
});
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
  const files = [...event.clipboardData.files].filter((each) => each.type.startsWith("image/"));
  if (files.length) { event.preventDefault(); askFiles(files); }
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
  askFiles(event.dataTransfer.files);
});

// On a narrow screen the results come first.
$("filters").open = !matchMedia(NARROW).matches;
begin();
