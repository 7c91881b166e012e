// Groups of duplicates: compare them, choose what to keep, export the choice, delete the rest.

import * as api from "/page/api.js";
import { compare } from "/page/compare.js";
import { hush, say, tellError } from "/page/messages.js";
import { $, bits, button, count, element, labelOf, likeness, many, nameOf } from "/page/parts.js";
import { remember, state } from "/page/state.js";

const GROUPS = 20;
const MEMBERS = 100;
const DELETES_AT_ONCE = 4;
const WAIT_MS = 2000;

// The last answer, and all groups that were loaded.
let answer = null;
let groups = [];
// Members that are to go; an id may be a number or a string, and the two are not the same.
const selected = new Set();
let loading = null;
let waiting = null;

export async function openDuplicates() {
  // Groups are kept for radii up to that of the store.
  $("group-radius").max = state.stats.radius;
  $("group-radius").value = state.groups.radius ?? state.stats.radius;
  $("group-linkage").value = state.groups.linkage;
  $("delete").hidden = !state.stats.writable;
  const isSame = answer?.radius === Number($("group-radius").value) && answer.linkage === state.groups.linkage;
  if (!isSame) await load();
}

function find() {
  state.groups = { radius: Number($("group-radius").value), linkage: $("group-linkage").value };
  remember();
  return load();
}

async function load({ after = null } = {}) {
  loading?.abort();
  clearTimeout(waiting);
  if (state.view !== "duplicates") return;
  const controller = new AbortController();
  loading = controller;
  $("progress").hidden = false;
  try {
    const request = {
      radius: Number($("group-radius").value), linkage: $("group-linkage").value, limit: GROUPS, after, members: MEMBERS,
    };
    const found = await api.groups(request, controller.signal);
    if (loading !== controller) return;
    answer = found;
    hush();
    if (after === null) {
      groups = [];
      selected.clear();
      $("groups").replaceChildren();
    }
    groups.push(...found.groups);
    $("groups").append(...found.groups.map(groupBox));
    tell();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.kind === "busy") {
      // They are made the first time that somebody asks.
      say("Groups are being made", "This takes a while the first time, and after many changes. They appear here when they are ready.");
      waiting = setTimeout(() => load({ after }), WAIT_MS);
    } else tellError(error, () => load({ after }));
  } finally {
    if (loading === controller) $("progress").hidden = true;
  }
}

function tell() {
  const { n_groups: all, n_items: items, radius } = answer;
  $("groups-title").textContent = all
    ? `${many(all, "group")} of ${many(items, "item")} within ${bits(radius)}` : "";
  if (!all) {
    say(`No duplicates within ${bits(radius)}`, radius < state.stats.radius
      ? "Raise the number of bits to find items that are less alike." : "This is the store's radius, the widest that groups are made for.");
  }
  $("group-tools").hidden = !groups.length;
  $("more-groups").hidden = answer.next === null || answer.next === undefined;
  $("more-groups").replaceChildren(
    element("span", { textContent: `${count.format(groups.length)} of ${many(all, "group")} are shown.` }),
    button("Show more groups", () => load({ after: answer.next })));
  tellSelected();
}

function tellSelected() {
  $("delete").disabled = !selected.size;
  $("delete").textContent = selected.size ? `Delete ${many(selected.size, "item")}` : "Delete the selected";
}

// --- a group -------------------------------------------------------------------------------------------------------

function groupBox(group) {
  const number = groups.indexOf(group) + 1;
  const title = element("h3");
  const box = element("section", { class: "group panel" });
  group.showSize = () => {
    title.textContent = `Group ${number}: ${many(group.size, "item")}`;
    box.setAttribute("aria-label", title.textContent);
    box.hidden = group.size < 2;
  };
  group.showSize();
  const list = element("ol", { class: "hits" }, ...group.members.map((member) => memberCard(group, member)));
  box.append(
    element("header", {}, title, button("Keep only the best", () => keepOnly(group, group.representative))), list);
  if (group.size > group.members.length) box.append(moreMembers(group, list));
  return box;
}

// A button that shows further members of a large group.
function moreMembers(group, list) {
  const text = () => `Show more of the other ${many(group.size - group.members.length, "member")}`;
  const more = button(text(), async () => {
    const { radius, linkage } = answer;
    try {
      const request = { radius, linkage, group: group.id, start: group.members.length, limit: MEMBERS };
      const { members } = await api.groupMembers(request);
      group.members.push(...members);
      list.append(...members.map((member) => memberCard(group, member)));
      more.textContent = text();
      more.hidden = !members.length || group.members.length >= group.size;
    } catch (error) {
      tellError(error);
    }
  });
  return element("p", { class: "more" }, more);
}

function memberCard(group, member) {
  const name = nameOf(member.id, member.payload);
  const label = labelOf(member.payload)?.[1];
  const isBest = member.id === group.representative;
  const open = element("button", {
    type: "button", class: "open", "aria-label": `${name}, ${isBest ? "best" : `${bits(member.distance)} from the best`}. Compare.`,
    onclick: () => compare(group.members, group.members.indexOf(member), besideBest(group, member)),
  }, likeness(member, { size: 256, stats: state.stats }));
  const box = element("input", { type: "checkbox", onchange: (event) => select(group, member, event.target.checked) });
  box.setAttribute("aria-label", `Remove ${name}`);
  const made = element("li", {}, element("article", { class: "hit" }, open,
    element("div", { class: "line" }, element("span", { class: "distance", textContent: isBest ? "best" : bits(member.distance) }),
      element("label", { class: "check" }, box, "remove")),
    element("div", { class: "name", textContent: name, title: name }),
    ...(label === undefined ? [] : [element("div", { class: "label", textContent: label })]),
    element("button", {
      type: "button", class: "from", textContent: "Keep only this", "aria-label": `Keep only ${name}`, onclick: () => keepOnly(group, member.id),
    })));
  member.show = () => {
    const isGoing = selected.has(member.id);
    box.checked = isGoing;
    made.firstChild.classList.toggle("going", isGoing);
  };
  member.card = made;
  return made;
}

function besideBest(group, member) {
  const best = group.members.find((each) => each.id === group.representative);
  if (!best || best === member) return null;
  return {
    title: `${nameOf(best.id, best.payload)} (best)`,
    picture: () => likeness(best, { size: 1024, stats: state.stats, alt: "The best of the group" }),
  };
}

function select(group, member, isGoing) {
  if (isGoing) selected.add(member.id);
  else selected.delete(member.id);
  member.show();
  tellSelected();
}

function keepOnly(group, id) {
  for (const member of group.members) select(group, member, member.id !== id);
}

// --- what to do with the choice ------------------------------------------------------------------------------------

function rows() {
  return groups.flatMap((group) => group.members.map((member) => ({
    group: group.id, id: member.id, distance: member.distance, best: member.id === group.representative,
    selected: selected.has(member.id), image: member.payload?.image ?? null, label: labelOf(member.payload)?.[1] ?? null,
  })));
}

function csv() {
  const fields = ["group", "id", "distance", "best", "selected", "image", "label"];
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return [fields, ...rows().map((row) => fields.map((field) => String(row[field] ?? "")))]
    .map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function save(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Ask before anything is deleted; what is selected is counted again in the question.
function confirmed() {
  const dialog = $("confirm");
  const whole = groups.filter((group) => group.members.length >= group.size && group.members.every((each) => selected.has(each.id)));
  $("confirm-title").textContent = `Delete ${many(selected.size, "item")} from the store?`;
  $("confirm-text").textContent = (whole.length ? `Of ${many(whole.length, "group")} nothing would be left. ` : "")
    + "This cannot be undone. The files of the pictures are not touched.";
  dialog.returnValue = "no";
  dialog.showModal();
  $("confirm-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function deleteSelected() {
  if (!await confirmed()) return;
  const waiting = [...selected];
  const gone = new Set();
  let failure = null;
  $("progress").hidden = false;
  const work = async () => {
    while (waiting.length && !failure) {
      const id = waiting.shift();
      try {
        await api.remove(id);
        gone.add(id);
      } catch (error) {
        // Somebody else was faster.
        if (error.status === 404) gone.add(id);
        else failure = error;
      }
    }
  };
  await Promise.all(Array.from({ length: DELETES_AT_ONCE }, work));
  $("progress").hidden = true;
  forget(gone);
  if (failure) tellError(failure, deleteSelected);
  else say(`${many(gone.size, "item")} deleted`);
}

function forget(gone) {
  const [allGroups, allItems] = [groups.length, sizes()];
  for (const id of gone) selected.delete(id);
  for (const group of groups) {
    const going = group.members.filter((member) => gone.has(member.id));
    for (const member of going) member.card.remove();
    group.members = group.members.filter((member) => !gone.has(member.id));
    group.size -= going.length;
    group.showSize();
  }
  // Who is left alone is no duplicate any more.
  groups = groups.filter((group) => group.size > 1);
  answer = {
    ...answer, n_groups: answer.n_groups - allGroups + groups.length, n_items: answer.n_items - allItems + sizes(),
  };
  tell();
}

function sizes() {
  return groups.reduce((sum, group) => sum + group.size, 0);
}

$("group-form").addEventListener("submit", (event) => { event.preventDefault(); find(); });
$("group-linkage").addEventListener("change", find);
$("select-rest").addEventListener("click", () => groups.forEach((group) => keepOnly(group, group.representative)));
$("select-none").addEventListener("click", () => {
  for (const group of groups) for (const member of group.members) select(group, member, false);
});
$("export-csv").addEventListener("click", () => save("duplicates.csv", "text/csv", csv()));
$("export-json").addEventListener("click", () => save("duplicates.json", "application/json", api.toJson(rows())));
$("delete").addEventListener("click", deleteSelected);
