// A file to translate: chosen, or dropped on the card; its translation is offered for download.
import { chosen } from "./languages.js";
import { translateFile } from "./server.js";

const line = $("file-line");

function say(...parts) {
  line.replaceChildren(...parts);
  line.hidden = false;
}

async function send(file) {
  say("Translating ", make("bdi", {}, file.name), " …");
  $("file-button").disabled = true;
  try {
    const link = make("a", { href: await translateFile(file, chosen()), download: "" }, "Download the translation");
    say(make("bdi", {}, file.name), " is translated. ", link);
    // Who goes on typing meanwhile keeps the focus.
    if ([document.body, $("file-button")].includes(document.activeElement)) link.focus();
  } catch (error) {
    say(make("bdi", {}, file.name), ` was not translated: ${error.message}`);
  }
  $("file-button").disabled = false;
  // A disabled button loses the focus.
  if (document.activeElement === document.body) $("file-button").focus();
}

export function start({ filesTranslation, supportedFilesFormat }) {
  if (!filesTranslation) return;
  const input = Object.assign($("file"), { accept: supportedFilesFormat.join() });
  $("file-button").hidden = false;
  $("file-button").title = supportedFilesFormat.join(", ");
  $("file-button").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) send(input.files[0]);
    input.value = "";
  });
  const card = $("card");
  card.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  card.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files[0]) return;
    event.preventDefault();
    send(event.dataTransfer.files[0]);
  });
}
