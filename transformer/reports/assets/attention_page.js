// The page around the maps: the grid of heads, one head enlarged, and its address.
const data = JSON.parse($("data").textContent);
const MEASURES = {
  previous: "weight on previous", same: "weight on same", next: "weight on next",
  first: "weight on first", separator: "weight on end",
  previous_peak: "strongest: previous", same_peak: "strongest: same", next_peak: "strongest: next",
  confidence: "mean maximum", entropy: "entropy, nats", possible_entropy: "possible entropy",
  relative_entropy: "entropy / possible", alignment_error: "alignment error rate",
};
let open = null; // { layer, head, query, key } of the enlarged head; query -1: no cell chosen

// ---- the grid: a row a layer, a column a head ----------------------------------------------
function sizes() {
  const heads = kind.layers[0].length;
  const longest = Math.max(...kind.queries.map((text) => text.length));
  const free = $("scroll").clientWidth - Math.min(longest, 14) * 8 - 50;
  const fit = Math.floor((free / heads - 14) / kind.keys.length);
  // Rather a little scrolling with tokens that can be read than thumbnails without.
  const labeled = 11 * kind.keys.length * heads <= 1.6 * Math.max(free, 106 * heads);
  if (labeled) return { labeled, size: Math.max(11, Math.min(fit, 24)) };
  return { labeled, size: Math.min(24, Math.max(96, free / heads - 14) / kind.keys.length) };
}

function draw() {
  const { labeled, size } = sizes();
  $("note").textContent = kind.note + (labeled ? "" : " Enlarge a head to read its tokens.");
  const grid = $("grid");
  const heads = kind.layers[0].length;
  const column = Math.max(kind.keys.length * size + 2, 104);
  grid.replaceChildren();
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, ${column}px)`;
  const place = (element, row, at) => {
    Object.assign(element.style, { gridRow: row, gridColumn: at });
    grid.append(element);
  };
  kind.layers.forEach((layer, number) => {
    const row = number * 4 + 1;
    place(make("div", { className: "side name" }, `layer ${number}`), row, 1);
    if (labeled) place(labels(kind.queries, "queries", size), row + 2, 1);
    layer.forEach(({ weights, words }, head) => {
      place(make("div", { className: "name" }, `${number}.${head}`), row, head + 2);
      if (labeled) place(labels(kind.keys, "keys", size), row + 1, head + 2);
      const box = map("button", weights, size);
      box.setAttribute("aria-label", `Layer ${number}, head ${head}: ${words}. Enlarge.`);
      box.addEventListener("click", () => enlarge({ layer: number, head, query: -1, key: -1 }));
      hover(box, weights, size);
      place(box, row + 2, head + 2);
      place(make("div", { className: "words" }, words), row + 3, head + 2);
    });
  });
  root.dataset.heads = grid.querySelectorAll(".map").length;
}

function show(name) {
  kind = data.kinds.find((one) => one.name === name) || data.kinds[0];
  for (const tab of $("tabs").children) {
    const chosen = tab.dataset.kind === kind.name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", `tab-${kind.name}`);
  $("best").replaceChildren(...kind.best.map(({ title, layer, head, text }) => {
    const chip = make("button", {}, `${title} `, make("b", {}, `${layer}.${head}`), " ", make("span", {}, text));
    chip.addEventListener("click", () => enlarge({ layer, head, query: -1, key: -1 }));
    return chip;
  }));
  const gold = kind.name === "cross" && kind.layers.flat().every((head) => head.alignment_error === null)
    ? " No gold word alignment is known for this text, so no head is named the best aligned." : "";
  $("measured").textContent = `Words and numbers of the heads are means over ${data.measured}, not over this sentence alone.${gold}`;
  draw();
}

// ---- one head, enlarged --------------------------------------------------------------------
function sharp(box, weights, size) {
  // Drawn at the resolution of the screen, with the numbers where they fit.
  const canvas = box.querySelector("canvas");
  const scale = devicePixelRatio || 1;
  const [width, height] = [kind.keys.length * size, kind.queries.length * size];
  Object.assign(canvas, { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  Object.assign(context, { font: `${Math.min(size * 0.36, 13)}px system-ui, sans-serif`, textAlign: "center", textBaseline: "middle" });
  weights.forEach((weight, at) => {
    const [x, y] = [(at % kind.keys.length) * size, Math.floor(at / kind.keys.length) * size];
    const [red, green, blue] = palette[shade(weight)];
    context.fillStyle = `rgb(${red},${green},${blue})`;
    context.fillRect(x, y, size, size);
    if (size < 26 || weight < 5) return;
    context.fillStyle = 0.3 * red + 0.6 * green + 0.1 * blue > 140 ? "#10151c" : "#ffffff";
    context.fillText((weight / 1000).toFixed(2).replace(/^0/, ""), x + size / 2, y + size / 2);
  });
}

function choose(cell) {
  const { weights } = kind.layers[open.layer][open.head];
  Object.assign(open, cell || { query: -1, key: -1 });
  const [queries, keys] = ["queries", "keys"].map((side) => $("large-map").querySelector(`.${side}`).children);
  [...queries].forEach((label, at) => label.classList.toggle("on", at === open.query));
  [...keys].forEach((label, at) => label.classList.toggle("on", at === open.key));
  mark($("large-map").querySelector(".map"), cell, open.size);
  if (cell) tell($("readout"), weights, cell);
  else $("readout").textContent = "Point at a weight, or walk with the arrow keys.";
  remember();
}

function enlarge(place) {
  open = place;
  const { weights, words, ...measures } = kind.layers[open.layer][open.head];
  $("large-title").textContent = `${kind.title}, layer ${open.layer}, head ${open.head}`;
  $("large-words").textContent = words;
  const longest = Math.max(...kind.queries.map((text) => text.length));
  const across = (innerWidth * 0.94 - 60 - Math.min(longest, 16) * 8) / kind.keys.length;
  const down = (innerHeight * 0.94 - 350) / kind.queries.length;
  open.size = Math.floor(Math.max(13, Math.min(across, Math.max(down, 20), 44)));
  const box = map("div", weights, open.size);
  Object.assign(box, { tabIndex: 0 });
  box.setAttribute("role", "application");
  box.setAttribute("aria-label", "Weights; walk with the arrow keys");
  sharp(box, weights, open.size);
  box.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") choose(cellAt(event, box)); });
  box.addEventListener("click", (event) => choose(cellAt(event, box)));
  box.addEventListener("keydown", walk);
  $("large-map").replaceChildren(
    make("div", { className: "side" }), labels(kind.keys, "keys", open.size),
    labels(kind.queries, "queries", open.size), box,
  );
  $("measures").replaceChildren(...Object.entries(MEASURES)
    .filter(([name]) => measures[name] !== null)
    .map(([name, text]) => make("div", {}, make("dt", {}, text), make("dd", {}, measures[name].toFixed(3)))));
  choose(open.query >= 0 ? { query: open.query, key: open.key } : null);
  $("tip").hidden = true;
  if ($("large").open) return;
  $("large").showModal();
  box.focus({ preventScroll: true });
}

function walk(event) {
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
  if (!down && !right) return;
  event.preventDefault();
  const within = (value, length) => Math.max(0, Math.min(value, length - 1));
  choose({
    query: within(Math.max(open.query, 0) + (open.query < 0 ? 0 : down), kind.queries.length),
    key: within(Math.max(open.key, 0) + (open.key < 0 ? 0 : right), kind.keys.length),
  });
  $("large-map").querySelector(".spot").scrollIntoView({ block: "nearest", inline: "nearest" });
}

function turn(step) {
  const heads = kind.layers.flatMap((layer, number) => layer.map((_, head) => [number, head]));
  const now = heads.findIndex(([layer, head]) => layer === open.layer && head === open.head);
  const [layer, head] = heads[(now + step + heads.length) % heads.length];
  enlarge({ ...open, layer, head });
}

// ---- the address: #KIND/LAYER.HEAD/QUERY.KEY -------------------------------------------------
function remember() {
  const place = !open ? "" : `/${open.layer}.${open.head}` + (open.query < 0 ? "" : `/${open.query}.${open.key}`);
  history.replaceState(null, "", `#${kind.name}${place}`);
}

function follow() {
  const [name, head, cell] = location.hash.slice(1).split("/");
  show(name);
  const [layer, number] = (head || "").split(".").map(Number);
  if (!kind.layers[layer]?.[number]) return;
  const [query, key] = (cell || "").split(".").map(Number);
  const chosen = query < kind.queries.length && key < kind.keys.length;
  enlarge({ layer, head: number, query: chosen ? query : -1, key: chosen ? key : -1 });
}

// ---- the page ------------------------------------------------------------------------------
const mixed = () => mix(dark.matches, $("root").checked);

function redraw() {
  mixed();
  draw();
  if (open) enlarge(open);
}

function start() {
  $("source").textContent = data.source;
  $("target").append(make("b", {}, data.target), data.forced ? " (given)" : " (translated by the model)");
  $("model").textContent = `${data.checkpoint}: ${data.size}`;
  for (const one of data.kinds) {
    const [first, ...rest] = one.title.split(" ");
    const tab = make("button", { id: `tab-${one.name}` }, first, make("span", {}, ` ${rest.join(" ")}`));
    Object.assign(tab.dataset, { kind: one.name });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "panel");
    tab.addEventListener("click", () => { show(one.name); remember(); });
    $("tabs").append(tab);
  }
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const at = data.kinds.indexOf(kind) + step + data.kinds.length;
    show(data.kinds[at % data.kinds.length].name);
    $(`tab-${kind.name}`).focus();
    remember();
  });
  $("root").addEventListener("change", redraw);
  dark.addEventListener("change", redraw);
  addEventListener("resize", redraw);
  addEventListener("hashchange", follow);
  $("before").addEventListener("click", () => turn(-1));
  $("after").addEventListener("click", () => turn(1));
  $("close").addEventListener("click", () => $("large").close());
  $("large").addEventListener("click", (event) => { if (event.target === $("large")) $("large").close(); });
  $("large").addEventListener("close", () => { open = null; remember(); });
  mixed();
  follow();
  root.dataset.ready = "true";
}
start();
