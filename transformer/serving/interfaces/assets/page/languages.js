// The two menus of languages, what was detected, and the swap of both.
const AUTO = "auto";
const from = $("from");
const to = $("to");
let known = []; // { code, name, targets } of each language; one that is only a target has no targets
let seen = null; // the detected language
const names = new Intl.DisplayNames(["en"], { type: "language" });

function nameOf(code) {
  const given = known.find((one) => one.code === code)?.name;
  try { return given || names.of(code); } catch { return code; }
}

const option = (code, text) => make("option", { value: code }, text);
const auto = option(AUTO, "");
const autoText = () => (seen ? `${nameOf(seen)} (detected)` : "Detect language");

// The languages into which the chosen one can be translated.
function targets() {
  const sources = known.filter(({ code }) => from.value === AUTO || code === from.value);
  return [...new Set(sources.flatMap((one) => one.targets))].sort((one, other) => nameOf(one).localeCompare(nameOf(other)));
}

function fillTargets(wanted) {
  to.replaceChildren(...targets().map((code) => option(code, nameOf(code))));
  if (targets().includes(wanted)) to.value = wanted;
  to.disabled = to.options.length === 1;
}

const translates = (source, target) => Boolean(known.find((one) => one.code === source)?.targets.includes(target));

function refresh() {
  auto.textContent = autoText();
  const back = source();
  const possible = back !== null && translates(to.value, back);
  $("swap").disabled = !possible;
  $("swap").title = possible || back === null ? "" : `No model translates from ${nameOf(to.value)} to ${nameOf(back)}`;
}

// The chosen or the detected source language; null if nobody knows it.
export const source = () => (from.value === AUTO ? seen : from.value);
export const chosen = () => ({ source: from.value, target: to.value });

export function detected(code) {
  seen = code;
  refresh();
}

export function start(languages, first, { changed, swapped }) {
  known = languages;
  const sources = known.filter((one) => one.targets.length > 0);
  // One language is no choice.
  from.disabled = sources.length === 1;
  from.replaceChildren(...(from.disabled ? [] : [auto]), ...sources.map(({ code }) => option(code, nameOf(code))));
  fillTargets(first);
  refresh();
  from.addEventListener("change", () => { fillTargets(to.value); refresh(); changed(); });
  to.addEventListener("change", () => { refresh(); changed(); });
  $("swap").addEventListener("click", () => {
    const [back, there] = [to.value, source()];
    from.value = back;
    fillTargets(there);
    detected(null);
    swapped();
  });
}
