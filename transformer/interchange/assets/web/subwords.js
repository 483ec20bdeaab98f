// The subwords of a tokenizer.json of ours: BPE or unigram, with bytes for unknown characters.

const START = "\u2581"; // The space before a word.
const STAND_IN = "\uffff"; // A literal U+2581; no text has this noncharacter.
const BYTE = /^<0x([0-9A-F]{2})>$/;

export class Subwords {
  constructor({ model, added_tokens: symbols }) {
    const entries = model.type === "BPE" ? Object.entries(model.vocab) : model.vocab.map(([name], id) => [name, id]);
    const control = new Set(symbols.map(({ id }) => id));
    this.spelling = [];
    this.ids = new Map();
    this.bytes = [];
    for (const [name, id] of entries) {
      this.spelling[id] = name;
      const byte = BYTE.exec(name);
      if (byte) this.bytes[parseInt(byte[1], 16)] = id;
      else if (!control.has(id)) this.ids.set(name, id);
    }
    this.control = control;
    if (model.type === "BPE") {
      this.ranks = new Map();
      model.merges.forEach(([left, right], rank) => {
        if (!this.ranks.has(left + right)) this.ranks.set(left + right, rank);
      });
    } else {
      this.scores = new Map(model.vocab.filter(([name]) => this.ids.has(name)));
      this.longest = Math.max(...[...this.scores.keys()].map((name) => [...name].length));
      this.unknown = Math.min(...this.scores.values()) - 10;
    }
  }

  /** The ids of a text, without the end; a blank text has none. */
  encode(text) {
    const kept = text.normalize("NFC").replaceAll(STAND_IN, "\ufffd").replaceAll(START, STAND_IN);
    const parts = kept.split(" ").filter(Boolean);
    if (!parts.length || !text.trim()) return [];
    // No subword of BPE goes on after a space.
    const pieces = this.ranks
      ? parts.flatMap((part) => this.merge([...START + part]))
      : this.best([...START + parts.join(START)]);
    return pieces.flatMap((piece) => this.ids.get(piece) ?? this.spellBytes(piece));
  }

  spellBytes(piece) {
    const bytes = new TextEncoder().encode(piece.replaceAll(STAND_IN, START));
    return Array.from(bytes, (byte) => this.bytes[byte]);
  }

  /** BPE: the pair that makes the best subword is joined first, the leftmost of equals. */
  merge(pieces) {
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let index = 0; index + 1 < pieces.length; index++) {
        const rank = this.ranks.get(pieces[index] + pieces[index + 1]) ?? Infinity;
        if (rank < best) [best, at] = [rank, index];
      }
      if (at < 0) return pieces;
      pieces.splice(at, 2, pieces[at] + pieces[at + 1]);
    }
  }

  /** Unigram: the segmentation of largest probability (Viterbi), in float32 as SentencePiece. */
  best(characters) {
    const totals = [0];
    const starts = [];
    for (let start = 0; start < characters.length; start++) {
      let piece = "";
      for (let end = start + 1; end <= Math.min(start + this.longest, characters.length); end++) {
        piece += characters[end - 1];
        const score = this.scores.get(piece) ?? (end === start + 1 ? this.unknown : undefined);
        if (score === undefined) continue;
        const total = Math.fround(totals[start] + Math.fround(score));
        if (!(total <= totals[end])) [totals[end], starts[end]] = [total, start];
      }
    }
    const pieces = [];
    for (let end = characters.length; end > 0; end = starts[end]) {
      pieces.unshift(characters.slice(starts[end], end).join(""));
    }
    return pieces;
  }

  names(ids) {
    return ids.map((id) => this.spelling[id]);
  }

  decode(ids) {
    let text = "";
    let bytes = [];
    const flush = () => {
      text += new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
      bytes = [];
    };
    for (const id of ids) {
      const byte = this.bytes.indexOf(id);
      if (byte >= 0) bytes.push(byte);
      else {
        flush();
        text += this.control.has(id) ? " \u2047 " : this.spelling[id].replaceAll(START, " ");
      }
    }
    flush();
    return text.replace(/^ /, "").replaceAll("\n", " ");
  }

  /** The text of each word, by the number of the word of each subword. */
  spell(ids, numbers) {
    const groups = Array.from({ length: Math.max(-1, ...numbers) + 1 }, () => []);
    ids.forEach((id, index) => groups[numbers[index]].push(id));
    return groups.map((group) => this.decode(group));
  }
}

/** The number of the word of each subword, from 0. */
export function words(names) {
  let word = -1;
  return names.map((name, index) => (name.startsWith(START) || !index ? ++word : word));
}
