// The page: what is typed is translated a moment later, and the last answer wins.
// `$`, `make` and the map of attention come from attention_map.js.
import * as alternatives from "./alternatives.js";
import * as attention from "./attention.js";
import * as file from "./file.js";
import * as languages from "./languages.js";
import * as server from "./server.js";
import * as texts from "./texts.js";
import { Translation } from "./translation.js";

const PAUSE = 300; // milliseconds without a key, after which the text is translated
const LONGEST = 1000; // milliseconds from a key to the translation, while one types without a pause
const ALTERNATIVES = 3;
const area = $("source");
let settings = {};
let translation = null;
let copied = ""; // the text that one can copy
let timer = 0;
let waiting = 0; // since when a key is not translated
let sequence = 0;
let controller = new AbortController();

function say(text, again = false) {
  $("message").hidden = !text;
  $("message").firstElementChild.textContent = text;
  $("again").hidden = !again;
  // Beside a message the translation may be that of an earlier text.
  const stale = Boolean(text) && Boolean(translation) && translation.source !== area.value;
  $("result").classList.toggle("stale", stale);
  $("copy").disabled = $("look").disabled = stale;
}

const options = () => ({ ...languages.chosen(), alternatives: Math.min(ALTERNATIVES, settings.alternatives) });

function showSentence() {
  const index = texts.chosenSentence();
  alternatives.show(translation, index, () => { texts.show(translation); showRest(); });
  attention.show(translation?.sentences[index], options());
}

function showRest() {
  $("legend").hidden = !translation?.unsure;
  $("look").hidden = !translation;
  copied = translation?.text || "";
  $("copy").hidden = !copied.trim();
  showSentence();
}

function show(found) {
  translation = found;
  $("target").lang = languages.chosen().target;
  area.lang = languages.source() || "";
  texts.show(found);
  showRest();
}

// A sound has no linked words and no alternatives.
function showSound(answer) {
  // A later answer for a text would take the place of its translation.
  controller.abort();
  sequence++;
  say("");
  $("result").ariaBusy = false;
  show(null);
  texts.showSound(answer);
  copied = answer.text;
  $("copy").hidden = !copied;
}

function problem(text) {
  if (settings.keyRequired && !sessionStorage.getItem("key")) return "This server needs an API key: enter it above.";
  const length = [...text].length;
  if (settings.charLimit > 0 && length > settings.charLimit) return `The text is too long by ${length - settings.charLimit} characters.`;
  return "";
}

function answered(text, answer) {
  say("");
  languages.detected(answer.detectedLanguage?.confidence ? answer.detectedLanguage.language : null);
  show(new Translation(text, answer));
}

async function translate() {
  clearTimeout(timer);
  waiting = 0;
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const number = ++sequence;
  const text = area.value;
  $("result").ariaBusy = false;
  if (!text.trim()) {
    say("");
    languages.detected(null);
    show(null);
    return;
  }
  if (problem(text)) {
    say(problem(text));
    return;
  }
  $("result").ariaBusy = true;
  try {
    let drawn = performance.now();
    const heard = (answer) => {
      if (number !== sequence || performance.now() < drawn + PAUSE) return;
      drawn = performance.now();
      answered(text, answer);
    };
    const answer = await server.patiently(() => server.translate(text, { ...options(), signal, heard }), signal, say);
    if (number === sequence) answered(text, answer);
  } catch (error) {
    if (number !== sequence) return;
    say(error.message, ![400, 403].includes(error.status));
  }
  $("result").ariaBusy = false;
}

function typed() {
  const length = [...area.value].length;
  const limit = settings.charLimit > 0 ? settings.charLimit : 0;
  $("count").hidden = area.disabled;
  $("count").textContent = length.toLocaleString("en") + (limit ? ` / ${limit.toLocaleString("en")}` : "");
  $("count").classList.toggle("over", limit > 0 && length > limit);
  $("clear").hidden = !area.value;
  $("card").classList.toggle("long", length > 280);
  texts.typed();
  file.typed();
  clearTimeout(timer);
  const now = performance.now();
  waiting ||= now;
  timer = setTimeout(translate, area.value.trim() ? Math.max(0, Math.min(PAUSE, waiting + LONGEST - now)) : 0);
}

function write(text) {
  area.value = text;
  typed();
  area.focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(copied);
  } catch {
    // Without TLS a page has no clipboard; what is selected can still be copied.
    getSelection().selectAllChildren($("target"));
    document.execCommand("copy");
  }
  $("copy").classList.add("copied");
  setTimeout(() => $("copy").classList.remove("copied"), 1500);
}

function askForKey() {
  $("key").hidden = !settings.keyRequired;
  $("key").value = sessionStorage.getItem("key") || "";
  $("key").addEventListener("change", () => {
    sessionStorage.setItem("key", $("key").value.trim());
    translate();
  });
}

async function start() {
  const never = new AbortController().signal;
  const ask = (work) => server.patiently(work, never, say);
  try {
    const [found, known] = await Promise.all([ask(server.settings), ask(server.languages)]);
    settings = found;
    languages.start(known, settings.language.target.code, {
      changed: () => { if (!file.again()) translate(); },
      swapped: () => write(translation ? translation.text : area.value),
    });
  } catch (error) {
    say(error.message, true);
    $("again").addEventListener("click", () => location.reload(), { once: true });
    return;
  }
  say("");
  askForKey();
  file.start(settings, showSound);
  texts.start(showSentence);
  attention.start(showSentence);
  area.addEventListener("input", typed);
  $("clear").addEventListener("click", () => write(""));
  // The button goes with its message.
  $("again").addEventListener("click", () => { area.focus(); translate(); });
  $("copy").addEventListener("click", copy);
  typed();
  document.documentElement.dataset.ready = "true";
}
start();
