// A file to translate: chosen, or dropped on the card. The translation of a document is offered for
// download; that of a sound is handed to the page.
import { chosen } from "./languages.js";
import { transcribe, translateFile } from "./server.js";

const line = $("file-line");
const SOUNDS = [".wav", ".flac", ".ogg", ".mp3"];
let formats = []; // of documents; none if no model reads text
let heard = () => {}; // is told the answer for a sound
let shown = null; // the sound whose translation is shown
let pending = null; // the sound whose translation is on its way
let sending = new AbortController(); // of the last file

const isDocument = (file) => formats.some((format) => file.name.toLowerCase().endsWith(format));

function say(failed, ...parts) {
  line.replaceChildren(...parts);
  line.classList.toggle("wrong", failed);
  line.hidden = false;
}

async function send(file) {
  // One file at a time: the answer for an earlier one is dropped.
  sending.abort();
  sending = new AbortController();
  const { signal } = sending;
  const asked = { ...chosen(), signal };
  pending = isDocument(file) ? null : file;
  // The languages chosen from now on are of the text again.
  if (!pending) shown = null;
  say(false, "Translating ", make("bdi", {}, file.name), " …");
  $("file-button").disabled = true;
  try {
    const answer = await (pending ? transcribe : translateFile)(file, asked);
    if (signal.aborted) return;
    if (pending) {
      heard(answer);
      shown = file;
      say(false, make("bdi", {}, file.name), " is translated.");
    } else {
      const link = make("a", { href: answer, download: "" }, "Download the translation");
      say(false, make("bdi", {}, file.name), " is translated. ", link);
      // Who goes on typing meanwhile keeps the focus.
      if ([document.body, $("file-button")].includes(document.activeElement)) link.focus();
    }
  } catch (error) {
    if (signal.aborted) return;
    say(true, make("bdi", {}, file.name), ` was not translated: ${error.message.replace(/^Invalid request: /, "")}`);
  }
  done();
}

function done() {
  pending = null;
  $("file-button").disabled = false;
  // A disabled button loses the focus.
  if (document.activeElement === document.body) $("file-button").focus();
}

// A failure is of no more use once one goes on with a text; a sound is shown no more, nor later.
export function typed() {
  if (shown || pending || line.classList.contains("wrong")) line.hidden = true;
  shown = null;
  if (!pending) return;
  sending.abort();
  done();
}

// Translates the last sound, if it is shown or on its way, between the languages that are chosen now.
export function again() {
  const sound = pending || shown;
  if (sound) send(sound);
  return Boolean(sound);
}

export function start({ filesTranslation, supportedFilesFormat, sourceKinds }, soundTranslated) {
  heard = soundTranslated;
  const readsText = sourceKinds.includes("text");
  const asked = filesTranslation ? "Choose a sound, or drop it here" : "This server takes no files";
  Object.assign($("source"), { disabled: !readsText, placeholder: readsText ? "Type or paste text" : asked });
  if (!filesTranslation) return;
  formats = readsText ? supportedFilesFormat : [];
  const taken = [...formats, ...(sourceKinds.includes("speech") ? SOUNDS : [])];
  const input = Object.assign($("file"), { accept: taken.join() });
  $("file-button").hidden = false;
  if (!readsText) {
    $("file-button").lastElementChild.textContent = "Choose a sound";
    $("file-button").focus();
  }
  $("file-button").title = taken.join(", ");
  $("file-button").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) send(input.files[0]);
    input.value = "";
  });
  const dropping = (event) => {
    const files = event.dataTransfer.types.includes("Files");
    if (files) event.preventDefault();
    return files;
  };
  const hint = (shown) => $("card").classList.toggle("dropping", shown);
  // Beside the card, too: the browser would leave the page for the file.
  document.addEventListener("dragover", (event) => hint(dropping(event)));
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) hint(false); });
  document.addEventListener("drop", (event) => {
    hint(false);
    if (dropping(event) && event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
  });
}
