"use strict";
// Sorts, filters and pages the sentences, and reads values off the charts; the page stands without it.
addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });

const PAGE = 25;
const table = document.getElementById("sentences");
const tip = document.getElementById("tip");

function number(row, column) {
  return parseFloat(row.cells[column].textContent.replace("−", "-").replaceAll(",", ""));
}

if (table) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const texts = new Map(rows.map((row) => [row, row.cells[row.cells.length - 1].textContent.toLowerCase()]));
  const search = document.getElementById("search"), flag = document.getElementById("flag");
  const count = document.getElementById("count"), more = document.getElementById("more");
  let limit = PAGE;

  const show = () => {
    const words = search.value.toLowerCase(), wanted = flag ? flag.value : "";
    const fits = (row) => texts.get(row).includes(words) &&
      (!wanted || row.dataset.flags.split(" ").includes(wanted));
    const found = rows.filter(fits), rest = rows.filter((row) => !fits(row));
    found.forEach((row, at) => { row.hidden = at >= limit; });
    rest.forEach((row) => { row.hidden = true; });
    // Those that are printed come first.
    body.append(...found, ...rest);
    count.textContent = `${found.length} of ${rows.length}`;
    more.hidden = found.length <= limit;
    more.textContent = `Show ${Math.min(100, found.length - limit)} more`;
  };
  const sort = (head, falling) => {
    const column = heads.indexOf(head), sign = falling ? -1 : 1;
    rows.sort((a, b) => sign * (number(a, column) - number(b, column)));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    show();
  };
  heads.filter((head) => "sort" in head.dataset).forEach((head) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head, head.getAttribute("aria-sort") === "ascending"));
  });
  const again = () => { limit = PAGE; show(); };
  search.addEventListener("input", again);
  if (flag) flag.addEventListener("change", again);
  more.addEventListener("click", () => { limit += 100; show(); });
  const form = document.querySelector(".controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

document.querySelectorAll("svg.chart").forEach((chart) => {
  const lines = JSON.parse(chart.dataset.lines), [left, right, low, high] = JSON.parse(chart.dataset.box);
  const view = chart.viewBox.baseVal;
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = low + ((event.clientX - box.left) / box.width * view.width - left) / (right - left) * (high - low);
    const near = lines.map((line) => line[1].reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const at = near.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)[0];
    tip.textContent = [`${at}`, ...lines.map((line, n) => `${line[0]} ${near[n][1]}`)].join("\n");
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.clientY + 12}px`;
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
});
