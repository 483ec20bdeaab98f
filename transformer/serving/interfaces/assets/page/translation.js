// What the server made of a text: its sentences with the blanks between them, and for each what
// one can choose as its translation.

function choices(one) {
  const { translation, alignment = [], word_confidence: confidence = [] } = one;
  const first = { text: translation, alignment, confidence };
  // Links and confidence are known of the first one alone.
  return [first, ...(one.alternatives || []).map((text) => ({ text, alignment: [], confidence: [] }))];
}

export class Translation {
  constructor(source, answer) {
    this.source = source;
    this.sentences = [];
    let end = 0;
    let written = 0;
    const whole = [{ source, translation: answer.translatedText }];
    for (const one of answer.sentences.length ? answer.sentences : whole) {
      const start = source.indexOf(one.source, end);
      const blanks = source.slice(end, start);
      // The blanks of the translation: it may have some where the source has none.
      const at = one.translation ? answer.translatedText.indexOf(one.translation, written) : written + blanks.length;
      const before = answer.translatedText.slice(written, at);
      this.sentences.push({ start, blanks, before, text: one.source, choices: choices(one), chosen: 0 });
      end = start + one.source.length;
      written = at + one.translation.length;
    }
    this.rest = source.slice(end);
  }

  // After the last sentence there are blanks, or what is not translated yet.
  get tail() {
    return this.rest.trim() ? "" : this.rest;
  }

  get text() {
    return this.sentences.map((one) => one.before + one.choices[one.chosen].text).join("") + this.tail;
  }

  get unsure() {
    return this.sentences.some((one) => one.choices[one.chosen].confidence.some(unsure));
  }
}

export const unsure = (probability) => probability < 0.5;

// The words of a text, as links count them: any blank separates those of a source, which the model
// reads as spaces; spaces and line ends those of a translation.
export const words = (text, side) => [...text.matchAll(side === "source" ? /\S+/gu : /[^ \n]+/gu)]
  .map((match) => ({ text: match[0], start: match.index }));

// The words that are linked with one; `side` is that of the given word.
export function partners(choice, side, word) {
  const given = side === "source" ? 0 : 1;
  return choice.alignment.filter((link) => link[given] === word).map((link) => link[1 - given]);
}
