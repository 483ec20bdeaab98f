// What the page asks of the server, and how it waits for one that is busy.
const RETRIED = [0, 429, 502, 503];
const TRIES = 4;

export class ServerError extends Error {
  // `status` is that of HTTP, 0 without an answer; `after` the seconds that the server wants to rest.
  constructor(status, text, after = 0) {
    super(text);
    Object.assign(this, { status, after });
  }
}

function refusal(response, answer) {
  const known = { 429: "The server is busy.", 503: "The server is busy.", 504: "The translation took too long." };
  const text = known[response.status] || answer?.error?.message || answer?.error || `The server answered with status ${response.status}.`;
  return new ServerError(response.status, text, Number(response.headers.get("Retry-After")) || 0);
}

const unreachable = (error) => (error.name === "AbortError" ? error : new ServerError(0, "The server cannot be reached."));

// `read` makes the answer of a response.
async function ask(path, options, read = (response) => response.json()) {
  const response = await fetch(path, options).catch((error) => { throw unreachable(error); });
  if (!response.ok) throw refusal(response, await response.json().catch(() => null));
  return read(response).catch((error) => { throw error instanceof ServerError ? error : unreachable(error); });
}

// Server-sent events: a sentence each. `heard` gets the answer as far as it has come.
async function sentences(response, heard) {
  const answer = { translatedText: "", sentences: [] };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    const events = (pending + value).split("\n\n");
    pending = events.pop();
    for (const text of events.map((event) => event.replace(/^data: /, ""))) {
      if (text === "[DONE]") return answer;
      const { error, translatedText, sentences, detectedLanguage } = JSON.parse(text);
      if (error) throw new ServerError(504, error);
      answer.translatedText += translatedText;
      answer.detectedLanguage = detectedLanguage;
      if (sentences) answer.sentences.push(...sentences);
    }
    if (events.length) heard(answer);
  }
  throw new ServerError(0, "The server ended in the middle of the translation.");
}

const key = () => sessionStorage.getItem("key") || undefined;

export const settings = () => ask("frontend/settings");
export const languages = () => ask("languages");

const post = (values, { signal, heard = () => {} }) => ask("translate", {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ ...values, api_key: key(), stream: true }),
  signal,
}, (response) => sentences(response, heard));

// Also word links and confidence, where the model has them for this text; `more` adds parameters.
export async function translate(text, { source, target, alternatives, more, ...calling }) {
  const plain = { q: text, source, target };
  try {
    return await post({ ...plain, alternatives, alignment: true, confidence: true, ...more }, calling);
  } catch (error) {
    if (error.status !== 400) throw error;
    return post(plain, calling);
  }
}

// The address of the translated file, below this page whatever the server is called outside.
export async function translateFile(file, { source, target, signal }) {
  const body = new FormData();
  for (const [name, value] of Object.entries({ file, source, target, api_key: key() })) {
    if (value !== undefined) body.append(name, value);
  }
  const { translatedFileUrl } = await ask("translate_file", { method: "POST", body, signal });
  return `download_file/${translatedFileUrl.split("/download_file/").pop()}`;
}

// The text and the timed segments of a sound, by the interface of OpenAI.
export async function transcribe(file, { source, target, signal }) {
  const body = new FormData();
  body.append("file", file);
  body.append("model", `${source}-${target}`);
  body.append("response_format", "verbose_json");
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  return ask("v1/audio/transcriptions", { method: "POST", headers, body, signal });
}

function rest(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
    // Once the network is there again, nothing is gained by waiting.
    addEventListener("online", resolve, { once: true });
  });
}

// The result of `work`, which is tried again while the server is busy; `tell` gets a line each time.
export async function patiently(work, signal, tell) {
  for (let tried = 1; ; tried++) {
    try {
      return await work();
    } catch (error) {
      if (!RETRIED.includes(error.status) || tried === TRIES) throw error;
      const seconds = Math.max(error.after, 2 ** (tried - 1));
      tell(`${error.message} Trying again in ${seconds} s.`);
      await rest(seconds, signal);
    }
  }
}
