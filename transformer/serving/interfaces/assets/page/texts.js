// Both texts as words that can be marked. The source is typed in a text area; behind it lies its
// mirror, the same text in the same lines, which carries the marks and makes the area grow.
import { partners, unsure, words } from "./translation.js";

const area = $("source");
const mirror = $("mirror");
const target = $("target");
let shown = null; // the translation
let spans = { source: [], target: [] }; // of each sentence, those of its words
let lit = [];
let cursor = null; // { sentence, word } that the keys have reached in the target
let onSentence = () => {};
let current = 0;
let learned = false; // that words can be pointed at

const choice = (index) => shown.sentences[index].choices[shown.sentences[index].chosen];

function sentence(side, index, text, confidence) {
  const box = make("span", { className: "sentence" });
  box.dataset.sentence = index;
  let end = 0;
  spans[side][index] = words(text, side).map((word, number) => {
    const span = make("span", { className: unsure(confidence[number]) ? "word unsure" : "word" }, word.text);
    span.dataset.word = number;
    box.append(text.slice(end, word.start), span);
    end = word.start + word.text.length;
    return span;
  });
  box.append(text.slice(end));
  return box;
}

function drawSource() {
  // A line end at the end has no line of its own without anything after it.
  const last = "\u200b";
  spans.source = [];
  const fresh = shown && shown.source === area.value;
  mirror.replaceChildren(...(fresh
    ? shown.sentences.flatMap((one, index) => [one.blanks, sentence("source", index, one.text, [])])
    : [area.value]), fresh ? shown.rest + last : last);
}

function drawTarget() {
  spans.target = [];
  const empty = shown && !shown.text.trim();
  target.dataset.empty = empty ? "The model gave no translation." : "Translation";
  target.replaceChildren(...(shown && !empty
    ? [...shown.sentences.flatMap((one, index) => [one.before, sentence("target", index, choice(index).text, choice(index).confidence)]), shown.tail]
    : []));
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

// The translation of a sound: a line for each segment, with the time at which it starts.
export function showSound({ text, segments }) {
  show(null);
  target.dataset.empty = text ? "Translation" : "The model gave no translation.";
  target.replaceChildren(...segments.filter((one) => one.text).map(({ start, text: line }) => (
    make("div", { className: "segment" }, make("time", {}, clock(start)), make("span", { dir: "auto" }, line)))));
}

function markSentence() {
  const several = shown && shown.sentences.length > 1;
  for (const box of document.querySelectorAll(".sentence")) {
    box.classList.toggle("current", several && Number(box.dataset.sentence) === current);
  }
}

// The source as it is typed: the marks of the last translation belong to another text.
export function typed() {
  dim();
  drawSource();
}

export function show(translation) {
  [shown, cursor] = [translation, null];
  dim();
  current = Math.min(current, Math.max(0, (shown?.sentences.length || 1) - 1));
  drawTarget();
  drawSource();
  markSentence();
}

export function dim() {
  lit.forEach((span) => span.classList.remove("on", "partner"));
  lit = [];
  const linked = !learned && shown?.sentences.some(({ choices }) => choices[0].alignment.length);
  $("readout").textContent = linked ? "Point at a word to see where it comes from" : "";
}

// Mark a word and its partners, and say which they are.
export function light(side, index, word) {
  dim();
  const other = side === "source" ? "target" : "source";
  const own = spans[side][index]?.[word];
  if (!own) return;
  const found = partners(choice(index), side, word).map((number) => spans[other][index]?.[number]).filter(Boolean);
  learned = true;
  own.classList.add("on");
  found.forEach((span) => span.classList.add("partner"));
  lit = [own, ...found];
  const quoted = (list) => list.map((span) => span.textContent).join(" ");
  const pair = side === "source" ? [[own], found] : [found, [own]];
  const probability = side === "target" ? choice(index).confidence[word] : undefined;
  $("readout").replaceChildren(
    ...(found.length ? [make("bdi", {}, quoted(pair[0])), " → ", make("bdi", {}, quoted(pair[1]))] : []),
    ...(probability === undefined ? [] : [make("b", {}, `${Math.round(probability * 100)} %`)]),
  );
}

export function choose(index) {
  if (!shown?.sentences[index] || index === current) return;
  current = index;
  markSentence();
  onSentence();
}

export const chosenSentence = () => current;

function wordAt(element) {
  const span = element?.closest?.("[data-word]");
  return span && { index: Number(span.parentElement.dataset.sentence), word: Number(span.dataset.word) };
}

// ---- the pointer ---------------------------------------------------------------------------
function point(event) {
  const under = event.currentTarget === target
    ? event.target
    : document.elementsFromPoint(event.clientX, event.clientY).find((element) => element.matches("#mirror [data-word]"));
  const found = wordAt(under);
  if (found) light(event.currentTarget === target ? "target" : "source", found.index, found.word);
  else dim();
}

// ---- the keys ------------------------------------------------------------------------------
function walk(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!step || !shown) return;
  event.preventDefault();
  const all = spans.target.flatMap((list, index) => list.map((_, word) => ({ index, word })));
  const now = cursor ? all.findIndex(({ index, word }) => index === cursor.index && word === cursor.word) : -1;
  cursor = all[Math.max(0, Math.min(all.length - 1, now < 0 && step < 0 ? 0 : now + step))];
  if (!cursor) return;
  choose(cursor.index);
  light("target", cursor.index, cursor.word);
  spans.target[cursor.index][cursor.word].scrollIntoView({ block: "nearest" });
}

// The word at the caret of the text area.
function caret() {
  if (document.activeElement !== area || !spans.source.length) return;
  const at = area.selectionStart;
  const index = shown.sentences.findLastIndex(({ start }) => start <= at);
  if (index < 0) return;
  choose(index);
  const { start, text } = shown.sentences[index];
  const word = words(text, "source").findIndex((one) => at >= start + one.start && at <= start + one.start + one.text.length);
  if (word >= 0) light("source", index, word);
  else dim();
}

export function start(sentenceChosen) {
  onSentence = sentenceChosen;
  for (const box of [area, target]) {
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerleave", dim);
    box.addEventListener("blur", dim);
  }
  target.addEventListener("click", (event) => {
    const found = wordAt(event.target);
    if (!found) return;
    cursor = found;
    choose(found.index);
    light("target", found.index, found.word);
  });
  // Read aloud only where the keys walk.
  target.addEventListener("focus", () => { $("readout").ariaLive = "polite"; });
  target.addEventListener("blur", () => { $("readout").ariaLive = "off"; });
  target.addEventListener("keydown", walk);
  document.addEventListener("selectionchange", caret);
  drawSource();
}
