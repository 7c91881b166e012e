// The map: codes as points of a plane, near ones near each other.

import * as api from "/page/api.js";
import * as draw from "/page/draw.js";
import { tellError } from "/page/messages.js";
import { $, bitsOfItem, button, count, element, labelOf, likeness, many, nameOf } from "/page/parts.js";
import { askItem } from "/page/query.js";
import { state } from "/page/state.js";

const POINTS = 2000;
const COLOURS = 10;
const MOST_ZOOM = 60;
const MARGIN = 18;
const REACH = 14;
// A press that moves less is no drag.
const STILL = 4;

const canvas = $("map");
let points = null;
let extent = null;
// Labels by how many points have them; the most frequent ones have a colour each.
let legend = [];
let only = null;
let chosen = null;
let view = { zoom: 1, x: 0, y: 0 };

export async function openMap() {
  if (points) {
    resize();
    return;
  }
  $("progress").hidden = false;
  try {
    const map = await api.map(POINTS);
    ({ points } = map);
    extent = { x: frameOf(points.map(({ x }) => x)), y: frameOf(points.map(({ y }) => y)) };
    const share = Math.round(100 * (map.shares[0] + map.shares[1]));
    $("map-title").textContent = map.sampled ? `Map of ${many(points.length, "item")}, drawn at random` : `Map of ${many(points.length, "item")}`;
    $("map-text").textContent = `The two principal components of the codes, with ${share}% of their variance: items that lie far apart differ, items that lie close may still differ in other bits.`;
    canvas.setAttribute("aria-label", $("map-title").textContent);
    showLegend();
    resize();
  } catch (error) {
    tellError(error, openMap);
  } finally {
    $("progress").hidden = true;
  }
}

// --- drawing -------------------------------------------------------------------------------------------------------

// The middle of the points, and their extent; of both directions, the scale is the same.
function frameOf(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return { middle: (least + most) / 2, half: Math.max((most - least) / 2, 1e-6) };
}

function place(point) {
  const [halfWidth, halfHeight] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
  const scale = Math.min((halfWidth - MARGIN) / extent.x.half, (halfHeight - MARGIN) / extent.y.half);
  return [
    halfWidth + ((point.x - extent.x.middle) * scale + view.x) * view.zoom,
    halfHeight + ((extent.y.middle - point.y) * scale + view.y) * view.zoom,
  ];
}

const isShown = (point) => only === null || point.label === only;

function colours() {
  const style = getComputedStyle(document.documentElement);
  return Array.from({ length: COLOURS }, (_, at) => style.getPropertyValue(`--kind-${at}`));
}

function redraw() {
  if (!points) return;
  const context = canvas.getContext("2d");
  const scale = canvas.width / canvas.clientWidth;
  const style = getComputedStyle(document.documentElement);
  const kinds = colours();
  const radius = Math.min(7, 3 * Math.sqrt(view.zoom));
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  for (const point of points) {
    const [x, y] = place(point);
    if (x < -9 || y < -9 || x > canvas.clientWidth + 9 || y > canvas.clientHeight + 9) continue;
    context.globalAlpha = isShown(point) ? 0.8 : 0.08;
    context.fillStyle = kinds[point.kind] ?? style.getPropertyValue("--soft");
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
  if (!chosen) return;
  const [x, y] = place(chosen);
  context.lineWidth = 2.5;
  context.strokeStyle = style.getPropertyValue("--ink");
  context.beginPath();
  context.arc(x, y, radius + 4, 0, 2 * Math.PI);
  context.stroke();
}

function resize() {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  redraw();
}

function showLegend() {
  const counts = new Map();
  for (const { label } of points) if (label !== null) counts.set(label, (counts.get(label) ?? 0) + 1);
  legend = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const kinds = new Map(legend.slice(0, COLOURS).map(([label], at) => [label, at]));
  for (const point of points) point.kind = kinds.get(point.label);
  $("map-labels").hidden = !legend.length;
  $("map-legend").replaceChildren(...legend.slice(0, 30).map(([label, number], at) => {
    const swatch = element("span", { class: at < COLOURS ? `swatch kind-${at}` : "swatch" });
    return element("li", {}, element("button", {
      type: "button", class: "swatch-button", "aria-pressed": "false", onclick: (event) => showOnly(label, event.currentTarget),
    }, swatch, element("span", { textContent: label }), element("span", { class: "fine", textContent: count.format(number) })));
  }));
}

function showOnly(label, pressed) {
  only = only === label ? null : label;
  for (const each of $("map-legend").querySelectorAll("button")) {
    each.setAttribute("aria-pressed", String(each === pressed && only !== null));
  }
  redraw();
}

// --- moving --------------------------------------------------------------------------------------------------------

// Zoom about a place of the canvas, which stays where it is.
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const zoomed = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor));
  const [fromX, fromY] = [x - canvas.clientWidth / 2, y - canvas.clientHeight / 2];
  view = {
    zoom: zoomed, x: view.x + fromX / zoomed - fromX / view.zoom, y: view.y + fromY / zoomed - fromY / view.zoom,
  };
  if (zoomed === 1) view = { zoom: 1, x: 0, y: 0 };
  redraw();
}

function reset() {
  view = { zoom: 1, x: 0, y: 0 };
  redraw();
}

function nearest(x, y) {
  let [best, least] = [null, REACH];
  for (const point of points ?? []) {
    if (!isShown(point)) continue;
    const [atX, atY] = place(point);
    const far = Math.hypot(atX - x, atY - y);
    if (far < least) [best, least] = [point, far];
  }
  return best;
}

// The next point in the direction of an arrow key: near, and not far to the side.
function beyond([toX, toY]) {
  const [fromX, fromY] = chosen ? place(chosen) : [canvas.clientWidth / 2, canvas.clientHeight / 2];
  let [best, least] = [null, Infinity];
  for (const point of points) {
    if (point === chosen || !isShown(point)) continue;
    const [x, y] = place(point);
    const along = (x - fromX) * toX + (y - fromY) * toY;
    const aside = Math.abs((x - fromX) * toY) + Math.abs((y - fromY) * toX);
    const cost = along + 2 * aside;
    if ((along > 0.5 && aside <= along && cost < least) || (!chosen && Math.abs(along) + aside < least)) {
      [best, least] = [point, chosen ? cost : Math.abs(along) + aside];
    }
  }
  return best;
}

// Move the map so that the chosen point is inside.
function follow() {
  const [x, y] = place(chosen);
  const over = (at, size) => Math.max(0, 30 - at) - Math.max(0, at - size + 30);
  view.x += over(x, canvas.clientWidth) / view.zoom;
  view.y += over(y, canvas.clientHeight) / view.zoom;
}

async function choose(point) {
  chosen = point;
  redraw();
  if (!point) {
    $("map-item").replaceChildren(element("p", { class: "fine", textContent: "Press a point." }));
    return;
  }
  try {
    const item = await api.item(point.id);
    if (chosen !== point) return;
    const label = labelOf(item.payload)?.[1];
    $("map-item").replaceChildren(
      element("div", { class: "frame" }, likeness(item, { size: 512, stats: state.stats })),
      element("div", { class: "name", textContent: nameOf(item.id, item.payload) }),
      ...(label === undefined ? [] : [element("div", { class: "label", textContent: label })]),
      draw.strip(bitsOfItem(item), null),
      element("div", { class: "row" }, button("Search from it", () => askItem(item))));
  } catch (error) {
    tellError(error);
  }
}

let press = null;
canvas.addEventListener("pointerdown", (event) => {
  press = { x: event.offsetX, y: event.offsetY, from: { ...view }, isDrag: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!press) {
    canvas.classList.toggle("over", Boolean(nearest(event.offsetX, event.offsetY)));
    return;
  }
  const [byX, byY] = [event.offsetX - press.x, event.offsetY - press.y];
  press.isDrag ||= Math.hypot(byX, byY) > STILL;
  if (!press.isDrag) return;
  view = { ...press.from, x: press.from.x + byX / view.zoom, y: press.from.y + byY / view.zoom };
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (press && !press.isDrag) choose(nearest(event.offsetX, event.offsetY));
  press = null;
});
canvas.addEventListener("pointercancel", () => { press = null; });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
}, { passive: false });
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
canvas.addEventListener("keydown", (event) => {
  if (!points || event.ctrlKey || event.metaKey) return;
  if (ARROWS[event.key]) {
    const next = beyond(ARROWS[event.key]);
    if (next) {
      chosen = next;
      follow();
      choose(next);
    }
  } else if (event.key === "+" || event.key === "=") zoom(1.5);
  else if (event.key === "-") zoom(1 / 1.5);
  else if (event.key === "0") reset();
  else if (event.key === "Enter") $("map-item").querySelector("button")?.click();
  else return;
  event.preventDefault();
});
$("zoom-in").addEventListener("click", () => zoom(1.6));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
$("zoom-reset").addEventListener("click", reset);
window.addEventListener("resize", () => { if (state.view === "map") resize(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
