"use strict";
// How one map of weights is drawn: colors, tokens, cells. The pages of reports and of the server
// use it; the names of this plain script are known to the scripts after it.
const root = document.documentElement;
// Any error is shown on the root element, where a test of the page finds it.
addEventListener("error", (event) => { root.dataset.error = event.message; });

const $ = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const STOPS = {
  light: ["#ffffff", "#d3e3f3", "#86b4dc", "#3a77b7", "#123462"],
  dark: ["#1b1f26", "#23436f", "#3573b5", "#7fb8f0", "#f4f9ff"],
};
let kind = null; // what is shown: its `queries` and `keys` are tokens; a map has a row a query

function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}

// ---- color -------------------------------------------------------------------------------
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function color(weight, night, lifted) {
  if (weight < 0) return rgb(getComputedStyle(root).getPropertyValue("--void").trim());
  const stops = STOPS[night ? "dark" : "light"].map(rgb);
  const place = (lifted ? Math.sqrt(weight) : weight) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((value, at) => Math.round(value + (stops[low + 1][at] - value) * (place - low)));
}

// The color of each thousandth, and last of what is not visible; also as one number a pixel.
let palette = [];
let packed = [];
function mix(night, lifted) {
  palette = Array.from({ length: 1001 }, (_, thousandth) => color(thousandth / 1000, night, lifted));
  palette.push(color(-1, night, lifted));
  packed = palette.map(([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  const samples = Array.from({ length: 21 }, (_, at) => `rgb(${palette[at * 50]})`);
  $("scale").style.background = `linear-gradient(90deg, ${samples})`;
}
const shade = (weight) => (weight < 0 ? 1001 : Math.min(weight, 1000));

// ---- tokens -------------------------------------------------------------------------------
function token(text) {
  if (text === "<s>" || text === "</s>") return make("bdi", { className: "symbol" }, text);
  const parts = text.split(/(\u2581)/).filter(Boolean);
  return make("bdi", {}, ...parts.map((part) => (part === "\u2581" ? make("i", {}, part) : part)));
}

function labels(tokens, side, size) {
  const font = `${Math.min(size * 0.82, 15)}px`;
  const axis = make("div", { className: side });
  for (const text of tokens) {
    const label = make("span", { title: text }, token(text));
    Object.assign(label.style, { fontSize: font, lineHeight: `${size}px` });
    label.style[side === "keys" ? "width" : "height"] = `${size}px`;
    axis.append(label);
  }
  if (side === "queries") axis.classList.add("side");
  return axis;
}

// ---- one map ------------------------------------------------------------------------------
function pixels(weights) {
  const [width, height] = [kind.keys.length, kind.queries.length];
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const numbers = new Uint32Array(image.data.buffer);
  weights.forEach((weight, at) => { numbers[at] = packed[shade(weight)]; });
  context.putImageData(image, 0, 0);
  return canvas;
}

function map(tag, weights, size) {
  const [width, height] = [kind.keys.length * size, kind.queries.length * size];
  const canvas = pixels(weights);
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const box = make(tag, { className: "map" }, canvas);
  Object.assign(box.style, { width: `${width}px`, height: `${height}px` });
  return box;
}

function cellAt(event, box) {
  const frame = box.querySelector("canvas").getBoundingClientRect();
  const key = Math.floor(((event.clientX - frame.left) / frame.width) * kind.keys.length);
  const query = Math.floor(((event.clientY - frame.top) / frame.height) * kind.queries.length);
  const inside = key >= 0 && query >= 0 && key < kind.keys.length && query < kind.queries.length;
  return inside ? { query, key } : null;
}

function mark(box, cell, size) {
  box.querySelectorAll("span").forEach((old) => old.remove());
  if (!cell) return;
  const across = make("span", { className: "across" });
  const down = make("span", { className: "down" });
  Object.assign(across.style, { top: `${cell.query * size - 1}px`, height: `${size + 1}px` });
  Object.assign(down.style, { left: `${cell.key * size - 1}px`, width: `${size + 1}px` });
  const spot = make("span", { className: "spot" });
  Object.assign(spot.style, { top: across.style.top, left: down.style.left });
  box.append(across, down, spot);
}

function tell(target, weights, { query, key }) {
  const weight = weights[query * kind.keys.length + key];
  const value = weight < 0 ? "not visible" : (weight / 1000).toFixed(3);
  target.replaceChildren(
    `${kind.queryName} `, token(kind.queries[query]), ` → ${kind.keyName} `,
    token(kind.keys[key]), "  ", make("b", {}, value),
  );
}

function hover(box, weights, size) {
  box.addEventListener("pointermove", (event) => {
    const cell = event.pointerType === "touch" ? null : cellAt(event, box);
    mark(box, cell, size);
    $("tip").hidden = !cell;
    if (!cell) return;
    tell($("tip"), weights, cell);
    const { offsetWidth: width, offsetHeight: height } = $("tip");
    const left = Math.min(event.clientX + 14, innerWidth - width - 8);
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    Object.assign($("tip").style, { left: `${Math.max(left, 4)}px`, top: `${top}px` });
  });
  box.addEventListener("pointerleave", () => { mark(box, null); $("tip").hidden = true; });
}
