// Other translations of the chosen sentence, of which one can be taken in place of the present one.
import { words } from "./translation.js";

const box = $("alternatives");
const list = box.querySelector("ul");

// The words that the present translation does not have stand out.
function differing(text, present) {
  const had = new Set(words(present, "target").map((word) => word.text));
  return text.split(/(\s+)/u).map((part) => (part.trim() && !had.has(part) ? make("b", {}, part) : part));
}

// `taken` is called after another one was chosen.
export function show(translation, index, taken) {
  const sentence = translation?.sentences[index];
  const others = (sentence?.choices || []).map((choice, number) => ({ ...choice, number }))
    .filter(({ number }) => number !== sentence.chosen);
  box.hidden = others.length === 0;
  const many = translation?.sentences.length > 1;
  $("alternatives-title").textContent = many ? `Alternatives for sentence ${index + 1} of ${translation.sentences.length}` : "Alternatives";
  list.replaceChildren(...others.map(({ text, number }, at) => {
    const button = make("button", { type: "button", dir: "auto", lang: $("target").lang },
      ...differing(text, sentence.choices[sentence.chosen].text));
    button.addEventListener("click", () => {
      sentence.chosen = number;
      taken();
      // The list was drawn anew; the keyboard goes on where it was.
      list.querySelectorAll("button")[at]?.focus();
    });
    return make("li", {}, button);
  }));
}
