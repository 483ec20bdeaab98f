// A file to translate: chosen, or dropped on the card. The translation of a document is offered for
// download; that of a sound is handed to the page.
import { chosen } from "./languages.js";
import { transcribe, translateFile } from "./server.js";

const line = $("file-line");
const SOUNDS = [".wav", ".flac", ".ogg", ".mp3"];
let formats = []; // of documents; none if no model reads text
let heard = () => {}; // is told the answer for a sound
let shown = null; // the sound whose translation is shown

const isDocument = (file) => formats.some((format) => file.name.toLowerCase().endsWith(format));

function say(failed, ...parts) {
  line.replaceChildren(...parts);
  line.classList.toggle("wrong", failed);
  line.hidden = false;
}

async function send(file) {
  say(false, "Translating ", make("bdi", {}, file.name), " …");
  $("file-button").disabled = true;
  try {
    if (!isDocument(file)) {
      heard(await transcribe(file, chosen()));
      shown = file;
      say(false, make("bdi", {}, file.name), " is translated.");
      return;
    }
    const link = make("a", { href: await translateFile(file, chosen()), download: "" }, "Download the translation");
    say(false, make("bdi", {}, file.name), " is translated. ", link);
    // Who goes on typing meanwhile keeps the focus.
    if ([document.body, $("file-button")].includes(document.activeElement)) link.focus();
  } catch (error) {
    say(true, make("bdi", {}, file.name), ` was not translated: ${error.message.replace(/^Invalid request: /, "")}`);
  } finally {
    $("file-button").disabled = false;
    // A disabled button loses the focus.
    if (document.activeElement === document.body) $("file-button").focus();
  }
}

// A failure is of no more use once one goes on with a text, and a sound is shown no more.
export function typed() {
  if (shown || line.classList.contains("wrong")) line.hidden = true;
  shown = null;
}

// Translates the sound that is shown, if there is one, between the languages that are chosen now.
export function again() {
  if (shown) send(shown);
  return Boolean(shown);
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
