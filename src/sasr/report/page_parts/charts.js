// ---- curves of several seeds as one ----
function smoothed(values, width) {
  if (width < 2) return values;
  const half = Math.floor(width / 2);
  return values.map((value, at) => {
    if (!Number.isFinite(value)) return NaN;
    let sum = 0, count = 0;
    for (let i = Math.max(0, at - half); i <= Math.min(values.length - 1, at + half); i++) {
      if (Number.isFinite(values[i])) { sum += values[i]; count++; }
    }
    return sum / count;
  });
}

function meanAndError(seeds) {
  const centre = [], low = [], high = [], count = [];
  for (let at = 0; at < (seeds[0] || []).length; at++) {
    const known = seeds.map((seed) => seed[at]).filter(Number.isFinite);
    const n = known.length;
    const mean = n ? known.reduce((a, b) => a + b, 0) / n : NaN;
    const error = n > 1 ? Math.sqrt(known.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (n - 1) / n) : NaN;
    centre.push(mean); low.push(mean - error); high.push(mean + error); count.push(n);
  }
  return { centre, low, high, count };
}

function across(result, steps) {
  if (state.x !== "hours") return steps;
  const last = steps[steps.length - 1];
  return result.hours && last ? steps.map((step) => (step / last) * result.hours) : [];
}

function curveOf(result) {
  const found = decoded(result);
  const success = state.y === "success";
  const [low, high] = result.scale;
  const scaled = (values) => (state.y === "normalised" ? values.map((v) => (high > low ? (v - low) / (high - low) : NaN)) : values);
  const shown = (list) => (list || []).map((values) => smoothed(scaled(values), state.smoothing));
  const seeds = shown(success ? found.success : found.returns);
  const curve = meanAndError(seeds);
  if (state.show === "iqm" && seeds.length) {
    [curve.centre, curve.low, curve.high] = shown(success ? found.successIqm : found.returnsIqm);
  }
  return { ...curve, seeds, x: across(result, found.steps) };
}

// One closed outline for each stretch without gaps.
function outline(curve) {
  const x = [], y = [];
  let from = -1;
  for (let at = 0; at <= curve.x.length; at++) {
    const there = at < curve.x.length && Number.isFinite(curve.low[at]) && Number.isFinite(curve.high[at]);
    if (there && from < 0) from = at;
    if (!there && from >= 0) {
      for (let i = from; i < at; i++) { x.push(curve.x[i]); y.push(curve.high[i]); }
      for (let i = at - 1; i >= from; i--) { x.push(curve.x[i]); y.push(curve.low[i]); }
      x.push(null); y.push(null);
      from = -1;
    }
  }
  return { x, y };
}

function tracesOf(result) {
  const curve = curveOf(result);
  if (!curve.x.length || !curve.seeds.length) return [];
  const own = colour(result.method), name = data.methods[result.method];
  const unit = state.x === "hours" ? "%{x:.3g} h" : "%{x:,} steps";
  const line = { type: "scatter", mode: "lines", name, x: curve.x, connectgaps: false, meta: "line" };
  const traces = [];
  if (state.show === "seeds") {
    curve.seeds.forEach((seed, index) => traces.push({
      ...line, y: seed, meta: "seed", line: { color: faint(own, 0.45), width: 1 },
      hovertemplate: `<b>${escaped(name)}</b>, seed ${result.seeds[index]}<br>${unit}: %{y:.4g}<extra></extra>`,
    }));
  } else {
    traces.push({ type: "scatter", mode: "lines", ...outline(curve), fill: "toself", fillcolor: faint(own, 0.16), line: { width: 0 }, hoverinfo: "skip", meta: "band" });
  }
  const between = state.show === "seeds" ? "" : "<br>%{customdata[0]:.4g} to %{customdata[1]:.4g}";
  traces.push({
    ...line, y: curve.centre, line: { color: own, width: result.method === 0 ? 2.6 : 1.7, dash: dash(result.method) },
    customdata: curve.count.map((n, at) => [curve.low[at], curve.high[at], n]),
    hovertemplate: `<b>${escaped(name)}</b> %{y:.4g}${between}<br>${unit}, %{customdata[2]} of ${result.seeds.length} seeds<extra></extra>`,
    mode: curve.x.length === 1 ? "markers" : "lines",
  });
  if (state.reference && result.reference && state.y === "return" && state.x !== "hours") {
    traces.push({
      type: "scatter", mode: "lines", name: `${name}, reference`, x: result.reference.steps, y: result.reference.mean, meta: "reference",
      line: { color: faint(own, 0.75), width: 1.2, dash: "dash" },
      hovertemplate: `<b>${escaped(name)}</b>, reference<br>%{x:,} steps: %{y:.4g}<extra></extra>`,
    });
  }
  return traces;
}

// Plotly reads a little HTML in labels; names are just names.
function escaped(text) {
  return text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
}

function layout(over = {}) {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: of("--line"), zerolinecolor: of("--line"), linecolor: of("--line"), automargin: true, tickfont: { size: 11 } };
  return {
    margin: { l: 44, r: 10, t: 8, b: 36 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: of("--sans"), color: of("--soft"), size: 12 }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: of("--card"), bordercolor: of("--line"), font: { color: of("--ink"), size: 12 }, align: "left" },
    dragmode: matchMedia("(pointer: coarse), (max-width: 900px)").matches ? false : "zoom",  // a finger scrolls
    ...over, xaxis: { ...axis, ...over.xaxis }, yaxis: { ...axis, ...over.yaxis },
  };
}

function draw(place, traces, over, name) {
  const settings = {
    responsive: true, displaylogo: false, toImageButtonOptions: { format: "svg", filename: name },
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "pan2d", "zoomIn2d", "zoomOut2d"],
  };
  return Plotly.react(place, traces, layout(over), settings);
}

// ---- one chart for each task, drawn when it comes into sight ----
const charts = data.tasks.map((name, task) => {
  const plot = make("div", { class: "plot", role: "img" });
  const enlarge = make("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => toggleSize(chart) }, "enlarge");
  const behind = make("details", { class: "behind", ontoggle: () => behind.open && tellCommands(chart) }, make("summary", {}, "Commands and machines"));
  const caption = make("figcaption", {}, make("h3", {}, name));
  const unfinished = data.results.filter((result) => result.task === task && result.gaps.length).length;
  if (unfinished) caption.append(make("a", { class: "chip warn", href: "#notes" }, `${unfinished} incomplete`));
  caption.append(enlarge);
  const figure = make("figure", { "data-task": name }, caption, plot, behind);
  const chart = { task, name, plot, figure, behind, enlarge, stale: true, seen: false };
  return chart;
});

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.find((own) => own.figure === entry.target);
    chart.seen = entry.isIntersecting;
    if (chart.seen) drawChart(chart);
  }
}, { rootMargin: "250px" });

function toggleSize(chart) {
  const large = chart.figure.classList.toggle("large");
  chart.enlarge.textContent = large ? "shrink" : "enlarge";
  chart.enlarge.setAttribute("aria-pressed", String(large));
  if (chart.plot.data) Plotly.Plots.resize(chart.plot);
}

function chosenResults(task) {
  return chosen("method").map((method) => resultAt.get(`${task}/${method}`)).filter(Boolean);
}

function drawChart(chart) {
  if (!canDraw() || !chart.stale || chart.figure.hidden) return;
  chart.stale = false;
  const results = chosenResults(chart.task);
  const traces = results.slice().reverse().flatMap(tracesOf);  // the first method is drawn last, on top
  const unscaled = state.y === "normalised" && !results.some((result) => result.scale[1] > result.scale[0]);
  const titles = { steps: "steps", log: "steps", hours: "hours", return: "return", normalised: "normalised return", success: "success rate" };
  draw(chart.plot, traces, {
    xaxis: { title: { text: titles[state.x], standoff: 6 }, type: state.x === "log" ? "log" : "linear", nticks: 6 },
    yaxis: { title: { text: titles[state.y], standoff: 4 } },
    uirevision: `${state.x}/${state.y}`,
    annotations: unscaled ? [{ text: "no seed succeeded, or no two methods differ", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }] : [],
  }, chart.name);
  const table = data.tables.find((own) => own.key === "final");
  const row = table.rows[chart.task];
  const told = results.map((result) => `${data.methods[result.method]} ${row[result.method + 1].text}`).join("; ");
  chart.plot.setAttribute("aria-label", `Learning curves on ${chart.name}. Final returns: ${told}.`);
}

function drawCurves() {
  let shown = 0;
  for (const chart of charts) {
    chart.figure.hidden = !state.task.has(chart.task) || !state.method.size;
    chart.stale = true;
    shown += !chart.figure.hidden;
    if (chart.seen) drawChart(chart);
    if (chart.behind.open) tellCommands(chart);
  }
  byId("charts").classList.toggle("single", shown === 1);
  byId("no-charts").hidden = shown > 0;
  byId("legend").replaceChildren(...chosen("method").map((method) =>
    make("span", {}, make("i", { class: "swatch", style: `--own:${colour(method)}` }), data.methods[method])));
}

function tellCommands(chart) {
  const parts = chosenResults(chart.task).flatMap((result) => {
    const name = data.methods[result.method];
    const head = make("h4", {}, make("i", { class: "swatch", style: `--own:${colour(result.method)}` }), name);
    const command = result.command
      ? make("div", { class: "command" }, make("code", {}, result.command), make("button", { type: "button", class: "plain", onclick: () => copy(result.command, "Command") }, "copy"))
      : make("p", {}, "Its command was not recorded; all settings are in its config.");
    const odd = [...result.gaps, ...result.remarks].map((text) => make("p", {}, text));
    return [head, command, make("p", {}, result.facts), ...odd];
  });
  chart.behind.replaceChildren(chart.behind.firstElementChild, ...parts);
}

// ---- methods compared ----
// With one method, or nothing learned, there is nothing to compare.
const overall = data.methods.length > 1 && data.aggregates.some((own) => own.tasks);

function drawOverall() {
  if (!canDraw() || !overall) return;
  const known = data.aggregates.filter((own) => own.tasks && state.method.has(data.methods.indexOf(own.method)));
  const ranked = known.slice().sort((a, b) => a.iqm[0] - b.iqm[0]);
  const names = ranked.map((own) => escaped(own.method));
  const colours = ranked.map((own) => colour(data.methods.indexOf(own.method)));
  const bars = ranked.map((own, at) => ({
    type: "scatter", mode: "lines", x: [own.iqm[1], own.iqm[2]], y: [names[at], names[at]], hoverinfo: "skip", meta: "bar",
    line: { color: faint(colours[at], 0.35), width: 11 },
  }));
  const points = {
    type: "scatter", mode: "markers", x: ranked.map((own) => own.iqm[0]), y: names, marker: { color: colours, size: 10 }, meta: "point",
    customdata: ranked.map((own) => [own.iqm[1], own.iqm[2], own.tasks]),
    hovertemplate: "<b>%{y}</b> %{x:.3f}<br>%{customdata[0]:.3f} to %{customdata[1]:.3f}<br>%{customdata[2]} tasks<extra></extra>",
  };
  draw(byId("intervals"), [...bars, points], { xaxis: { title: { text: "normalised return" } }, yaxis: { type: "category", showgrid: false } }, "interquartile-mean");
  byId("intervals").setAttribute("aria-label", "Interquartile means: " + ranked.slice().reverse().map((own) => `${own.method} ${own.iqm[0]}`).join("; "));
  const profiles = known.slice().reverse().filter((own) => own.profile).flatMap((own) => {
    const method = data.methods.indexOf(own.method), { thresholds, share, low, high } = own.profile;
    const band = outline({ x: thresholds, low, high });
    return [
      { type: "scatter", mode: "lines", ...band, fill: "toself", fillcolor: faint(colour(method), 0.12), line: { width: 0 }, hoverinfo: "skip" },
      { type: "scatter", mode: "lines", x: thresholds, y: share, line: { color: colour(method), width: method ? 1.7 : 2.6, dash: dash(method) },
        hovertemplate: `<b>${escaped(own.method)}</b><br>%{y:.0%} of runs above %{x:.2f}<extra></extra>` },
    ];
  });
  draw(byId("profiles"), profiles, { xaxis: { title: { text: "normalised return τ" } }, yaxis: { title: { text: "share of runs above τ" }, range: [0, 1.02], tickformat: ".0%" } }, "profiles");
  byId("profiles").setAttribute("aria-label", "Performance profiles of the chosen methods; the table below has their interquartile means.");
}
