// ---- controls ----
const form = byId("form");

function makeControls() {
  for (const [kind, names] of [["method", data.methods], ["task", data.tasks]]) {
    byId(`${kind}s`).append(...names.map((name, at) => {
      const box = make("input", { type: "checkbox", name: kind, value: at, checked: state[kind].has(at) });
      const swatch = kind === "method" ? [make("i", { class: "swatch", "data-method": at })] : [];
      return make("label", {}, box, ...swatch, make("span", {}, name));
    }));
  }
  const choices = (name, list) => form.elements[name].append(...list.filter(Boolean).map(([value, text]) => make("option", { value }, text)));
  choices("x", [["steps", "steps"], ["log", "steps, logarithmic"], data.results.some((result) => result.hours) && ["hours", "hours of training"]]);
  choices("y", [["return", "return"], data.methods.length > 1 && ["normalised", "return, normalised by task"], data.results.some((result) => result.success) && ["success", "success rate"]]);
  byId("with-reference").hidden = !data.results.some((result) => result.reference);
}

function toForm() {
  for (const box of form.querySelectorAll("input[type=checkbox][value]")) {
    if (state[box.name] instanceof Set) box.checked = state[box.name].has(Number(box.value));
  }
  form.elements.reference.checked = state.reference;
  for (const name of ["show", "smoothing", "x", "y"]) form.elements[name].value = state[name];
  tellSmoothing();
}

function fromForm() {
  for (const kind of ["method", "task"]) {
    state[kind] = new Set([...form.querySelectorAll(`input[name=${kind}]:checked`)].map((box) => Number(box.value)));
  }
  state.show = form.elements.show.value;
  state.smoothing = Number(form.elements.smoothing.value);
  state.x = form.elements.x.value;
  state.y = form.elements.y.value;
  state.reference = form.elements.reference.checked;
  tellSmoothing();
}

function tellSmoothing() {
  byId("smoothing-told").textContent = state.smoothing > 1 ? `mean of ${state.smoothing} points` : "off";
}

function chosen(kind) {
  return [...state[kind]].sort((a, b) => a - b);
}

// The address carries the choice, so that a view can be bookmarked and passed on.
function toAddress() {
  const parts = new URLSearchParams();
  for (const [kind, names] of [["method", data.methods], ["task", data.tasks]]) {
    const usual = kind === "method" ? data.preselected : [...names.keys()];
    if (chosen(kind).join() !== usual.join()) parts.set(kind, chosen(kind).join("."));
  }
  for (const [name, usual] of [["show", "mean"], ["smoothing", 1], ["x", "steps"], ["y", "return"], ["reference", true]]) {
    if (state[name] !== usual) parts.set(name, state[name]);
  }
  try { history.replaceState(null, "", `#${parts}`); } catch (error) { /* not every browser lets a page from disk do this */ }
}

function fromAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const [kind, names] of [["method", data.methods], ["task", data.tasks]]) {
    if (!parts.has(kind)) continue;
    state[kind] = new Set(parts.get(kind).split(".").filter(Boolean).map(Number).filter((at) => at in names));
  }
  for (const name of ["show", "x", "y"]) {
    const options = name === "show" ? ["mean", "iqm", "seeds"] : [...form.elements[name].options].map((option) => option.value);
    if (options.includes(parts.get(name))) state[name] = parts.get(name);
  }
  const width = Number(parts.get("smoothing"));
  if (width >= 1 && width <= 25) state.smoothing = width;
  if (parts.get("reference") === "false") state.reference = false;
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawCurves();
    drawOverall();
    drawTables();
  });
}

// What was never in sight has not been drawn yet, paper is narrower than the screen, and a film prints as a white box.
function drawForPrint() {
  for (const film of document.querySelectorAll("video")) {
    const still = film.nextElementSibling;
    [still.width, still.height] = [film.videoWidth, film.videoHeight];
    still.getContext("2d").drawImage(film, 0, 0);
  }
  for (const chart of charts) drawChart(chart);
  if (data.maps.length && canDraw() && !byId("map").data) showLastMap();
  for (const plot of document.querySelectorAll(".plot")) {
    if (plot.data && plot.offsetWidth) Plotly.relayout(plot, { width: plot.offsetWidth, height: plot.offsetHeight });
  }
}

function paintSwatches() {
  for (const swatch of document.querySelectorAll(".swatch[data-method]")) swatch.style.setProperty("--own", colour(Number(swatch.dataset.method)));
}

function listen() {
  form.addEventListener("input", () => { fromForm(); toAddress(); redraw(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of form.querySelectorAll("[data-all], [data-none]")) {
    button.addEventListener("click", () => {
      const kind = button.dataset.all || button.dataset.none;
      for (const box of form.querySelectorAll(`input[name=${kind}]`)) box.checked = Boolean(button.dataset.all);
      fromForm(); toAddress(); redraw();
    });
  }
  const repaint = () => { paintSwatches(); redraw(); if (byId("map").data) drawMap(); };
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("sasr-theme", theme); } catch (error) { /* storage can be off */ }
    repaint();
    say(`${theme} theme`);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", drawForPrint);
  matchMedia("print").addEventListener("change", (medium) => medium.matches && drawForPrint());
  addEventListener("afterprint", () => {
    for (const plot of document.querySelectorAll(".plot")) if (plot.data) Plotly.relayout(plot, { width: null, height: null, autosize: true });
  });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy, "Command"));
}

const plotlyHere = unpackPlotly();
makeControls();
fromAddress();
toForm();
listen();
paintSwatches();
if (matchMedia("(max-width: 900px)").matches) byId("controls").open = false;
byId("overall").hidden = !overall;
byId("charts").append(...charts.map((chart) => chart.figure));
makeTables();
makeRemarks();
makeFilms();
drawCurves();
drawTables();
plotlyHere.then(() => {
  drawOverall();
  makeMaps();
  for (const chart of charts) watcher.observe(chart.figure);
  document.documentElement.dataset.ready = "true";
}, () => { byId("cannot-draw").hidden = false; });
