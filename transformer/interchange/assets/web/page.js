// Loads the files that settings.json lists, then translates sentence by sentence, greedily.
import * as ort from "./runtime/ort.wasm.bundle.min.mjs";
import { Subwords, words } from "./subwords.js";

const element = (id) => document.getElementById(id);
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/** The files by their names; `report` is called with the fraction that has arrived. */
async function download(sizes, report) {
  const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  const files = {};
  let arrived = 0;
  for (const name of Object.keys(sizes)) {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`${name} is missing`);
    const parts = [];
    const reader = answer.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      arrived += part.value.length;
      report(arrived / total, arrived);
    }
    files[name] = new Uint8Array(await new Blob(parts).arrayBuffer());
  }
  return files;
}

class Translator {
  static async load(settings, files) {
    const read = (name) => JSON.parse(new TextDecoder().decode(files[name]));
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmBinary = files[settings.runtime];
    const made = new Translator();
    made.settings = { ...settings, ...read("model/config.json") };
    made.source = new Subwords(read("model/tokenizer.json"));
    const own = "model/target/tokenizer.json";
    made.target = own in files ? new Subwords(read(own)) : made.source;
    made.encoder = await ort.InferenceSession.create(files[settings.encoder]);
    made.decoder = await ort.InferenceSession.create(files[settings.decoder]);
    return made;
  }

  /** The words of source and translation, and the source words of each translated word. */
  async translate(text) {
    const { max_source: most, max_length: longest, max_length_ratio: ratio, max_length_offset: more } = this.settings;
    const ids = this.source.encode(text);
    if (!ids.length) return { source: [], target: [], links: [] };
    if (ids.length > most) return { source: [text], target: ["(too long for this model)"], links: [[]] };
    const limit = Math.min(Math.max(1, Math.floor(ratio * ids.length + more)), longest - 1);
    const { found, attention } = await this.search([...ids, this.settings.eos_token_id], limit);
    const source = words(this.source.names(ids));
    const target = words(this.target.names(found));
    return {
      source: this.source.spell(ids, source),
      target: this.target.spell(found, target),
      links: links(attention, source, target, this.settings.alignment_threshold),
    };
  }

  async search(ids, limit) {
    const integers = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    const mask = integers(ids.map(() => 1));
    const { last_hidden_state: memory } = await this.encoder.run({ input_ids: integers(ids), attention_mask: mask });
    const { decoder_attention_heads: heads, head_dim: width, eos_token_id: end } = this.settings;
    let cache = {};
    for (const name of this.decoder.inputNames.filter((one) => one.startsWith("past"))) {
      cache[name] = new ort.Tensor("float32", new Float32Array(0), [1, heads, 0, width]);
    }
    const found = [];
    const attention = [];
    let token = this.settings.decoder_start_token_id;
    while (found.length < limit) {
      const { logits, alignment, ...presents } = await this.decoder.run({
        input_ids: integers([token]), encoder_attention_mask: mask, encoder_hidden_states: memory, ...cache,
      });
      token = logits.data.reduce((best, value, index, all) => (value > all[best] ? index : best), 0);
      if (token === end) break;
      found.push(token);
      attention.push(alignment.data);
      cache = Object.fromEntries(
        Object.entries(presents).map(([name, value]) => [name.replace("present", "past_key_values"), value]),
      );
    }
    return { found, attention };
  }
}

/** For each target word, the source words with at least `threshold` of its largest weight. */
function links(attention, source, target, threshold) {
  const count = Math.max(-1, ...source) + 1;
  const sums = Array.from({ length: Math.max(-1, ...target) + 1 }, () => new Array(count).fill(0));
  target.forEach((word, row) => source.forEach((other, column) => (sums[word][other] += attention[row][column])));
  return sums.map((row) => row.flatMap((sum, other) => (sum > 0 && sum >= threshold * Math.max(...row) ? [other] : [])));
}

/** A sentence and its translation; a word that is pointed at or focused marks those linked to it. */
function show({ source, target, links }, settings) {
  const line = (name, language, texts) => {
    const made = Object.assign(document.createElement("p"), { className: name, lang: language, dir: "auto" });
    const spans = texts.map((text) => Object.assign(document.createElement("span"), { textContent: text }));
    spans.forEach((span, index) => made.append(...(index ? [" ", span] : [span])));
    return [made, spans];
  };
  const [above, sources] = line("source", settings.source, source);
  const [below, targets] = line("target", settings.target, target);
  const link = (span, others) => {
    const mark = (on) => [span, ...others].forEach((one) => one.classList.toggle("linked", on));
    for (const event of ["pointerenter", "focus"]) span.addEventListener(event, () => mark(true));
    for (const event of ["pointerleave", "blur"]) span.addEventListener(event, () => mark(false));
  };
  targets.forEach((span, index) => {
    span.tabIndex = 0;
    link(span, links[index].map((other) => sources[other]));
  });
  sources.forEach((span, index) => link(span, targets.filter((_, other) => links[other].includes(index))));
  const made = Object.assign(document.createElement("div"), { className: "sentence" });
  made.append(above, below);
  return made;
}

function sentences(text, language) {
  const lines = text.split("\n");
  if (!element("split").checked) return lines;
  const segmenter = new Intl.Segmenter(language, { granularity: "sentence" });
  return lines.flatMap((line) => Array.from(segmenter.segment(line), ({ segment }) => segment.trim()));
}

async function main() {
  const settings = await (await fetch("settings.json")).json();
  const names = `${settings.source_name} to ${settings.target_name}`;
  document.title = document.querySelector("h1").textContent = `Translation in the browser: ${names}`;
  element("label").textContent = settings.source_name;
  element("heading").textContent = settings.target_name;
  element("text").lang = settings.source;
  const report = (fraction, bytes) => {
    element("progress").value = fraction;
    element("status").textContent = `Loading: ${megabytes(bytes)}`;
  };
  const translator = await Translator.load(settings, await download(settings.files, report));
  const size = (start) => Object.entries(settings.files).reduce((sum, [name, bytes]) => sum + (name.startsWith(start) ? bytes : 0), 0);
  element("size").textContent = `${megabytes(size(""))} were loaded, of which the model has ${megabytes(size("model/"))}.`;
  element("status").textContent = "Ready";
  element("translate").disabled = false;
  element("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (element("translate").disabled) return;
    element("translate").disabled = true;
    element("output").replaceChildren();
    const texts = sentences(element("text").value, settings.source).filter((text) => text.trim());
    const start = performance.now();
    try {
      for (const [index, text] of texts.entries()) {
        element("status").textContent = `Sentence ${index + 1} of ${texts.length}`;
        element("output").append(show(await translator.translate(text), settings));
        element("progress").value = (index + 1) / texts.length;
        await new Promise((resume) => setTimeout(resume)); // The browser draws.
      }
      const seconds = (performance.now() - start) / 1000;
      element("status").textContent = `${texts.length} sentences in ${seconds.toFixed(2)} seconds`;
    } catch (error) {
      element("status").textContent = error.message;
    }
    element("translate").disabled = false;
  });
  element("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("form").requestSubmit();
  });
}

main().catch((error) => {
  element("status").className = "error";
  element("status").textContent = `The page cannot start: ${error.message}`;
});
