// The drawer: how the model looked at the chosen sentence. The map is that of attention_map.js.
import { translate } from "./server.js";

const drawer = $("drawer");
const known = new Map(); // from a sentence to its attention
let sequence = 0;
let cell = null;
let revealed = false; // since the drawer was opened

const note = (text) => { $("weight").textContent = text; };

async function attention(sentence, options) {
  const name = JSON.stringify([options.source, options.target, sentence.text]);
  if (!known.has(name)) {
    const answer = await translate(sentence.text, { ...options, more: { attention: true } });
    const found = answer.sentences?.find((one) => one.translation === sentence.choices[0].text);
    known.set(name, found?.attention || null);
  }
  return known.get(name);
}

function walk(event, box, weights, size) {
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
  if (!down && !right) return;
  event.preventDefault();
  const within = (value, length) => Math.max(0, Math.min(value, length - 1));
  cell = cell
    ? { query: within(cell.query + down, kind.queries.length), key: within(cell.key + right, kind.keys.length) }
    : { query: 0, key: 0 };
  mark(box, cell, size);
  const spot = box.querySelector(".spot");
  Object.assign(spot.style, { width: `${size}px`, height: `${size}px` });
  spot.scrollIntoView({ block: "nearest", inline: "nearest" });
  tell($("weight"), weights, cell);
}

function draw() {
  mix(isDark(), false);
  const weights = kind.weights;
  const longest = Math.max(...kind.queries.map((text) => text.length));
  const free = $("map-scroll").parentElement.clientWidth - Math.min(longest, 14) * 9 - 24;
  const size = Math.floor(Math.max(16, Math.min(34, free / kind.keys.length)));
  const box = map("div", weights, size);
  Object.assign(box, { tabIndex: 0 });
  box.setAttribute("role", "application");
  box.setAttribute("aria-label", "Weights; walk with the arrow keys");
  hover(box, weights, size);
  box.addEventListener("keydown", (event) => walk(event, box, weights, size));
  cell = null;
  note("Point at a weight, or walk with the arrow keys.");
  $("map").replaceChildren(make("div"), labels(kind.keys, "keys", size), labels(kind.queries, "queries", size), box);
}

// `sentence` has a source text and choices; null empties the drawer.
export async function show(sentence, options) {
  const number = ++sequence;
  if (drawer.hidden) return;
  $("map").replaceChildren();
  note("");
  if (!sentence) return note("Translate a text to see its attention.");
  if (sentence.chosen) return note("The attention is known of the first translation alone, not of an alternative.");
  let found = null;
  try { found = await attention(sentence, options); } catch (error) { return number === sequence && note(error.message); }
  if (number !== sequence) return;
  if (!found?.tokens.length) return note("This model tells no attention of this sentence.");
  kind = {
    queries: found.tokens,
    keys: found.source_tokens,
    queryName: "translation",
    keyName: "source",
    weights: found.weights.flat().map((weight) => Math.round(weight * 1000)),
  };
  draw();
  if (revealed) return;
  revealed = true;
  drawer.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

export function start(opened) {
  const toggle = (open) => {
    drawer.hidden = !open;
    revealed = false;
    $("look").setAttribute("aria-expanded", open);
    if (open) opened();
    else ($("look").hidden || $("look").disabled ? $("source") : $("look")).focus();
  };
  $("look").addEventListener("click", () => toggle(drawer.hidden));
  $("close").addEventListener("click", () => toggle(false));
  drawer.addEventListener("keydown", (event) => { if (event.key === "Escape") toggle(false); });
  for (const [where, name] of [[document, "theme"], [window, "resize"]]) {
    where.addEventListener(name, () => { if ($("map").hasChildNodes()) draw(); });
  }
}
