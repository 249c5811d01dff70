// ---- success-rate maps ----
function mapChosen() {
  return data.maps[Number(byId("map-run").value)];
}

function drawMap() {
  const map = mapChosen(), moment = Number(byId("map-step").value);
  const width = map.x.length, size = width * map.y.length;
  map.decoded = map.decoded || unpack(map.rate, 0, 1, 8);
  const z = rows(map.decoded.slice(moment * size, (moment + 1) * size), width);
  byId("map-told").textContent = `${map.steps[moment].toLocaleString("en")} steps`;
  byId("map-step").setAttribute("aria-valuetext", byId("map-told").textContent);
  byId("map-caption").textContent = `${map.run}, ${byId("map-told").textContent}`;
  draw(byId("map"), [{
    type: "heatmap", x: map.x, y: map.y, z, zmin: 0, zmax: 1, colorscale: "Viridis", colorbar: { title: { text: "success rate", side: "right" }, thickness: 12, outlinewidth: 0 },
    hovertemplate: `${map.axes[0]} %{x:.3g}, ${map.axes[1]} %{y:.3g}<br>success rate %{z:.3f}<extra></extra>`,
  }], { xaxis: { title: { text: map.axes[0] } }, yaxis: { title: { text: map.axes[1] } } }, "success-rate");
  byId("map").setAttribute("aria-label", `Success rate over ${map.axes.join(" and ")} in ${map.run} at ${byId("map-told").textContent}, mean of ${map.seeds} seeds`);
}

function playMap() {
  const slider = byId("map-step"), button = byId("map-play");
  const stop = () => { clearInterval(playMap.timer); playMap.timer = null; button.textContent = "▶ play"; };
  if (playMap.timer) return stop();
  if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
  button.textContent = "❚❚ pause";
  drawMap();
  playMap.timer = setInterval(() => {
    if (Number(slider.value) >= Number(slider.max)) return stop();
    slider.value = Number(slider.value) + 1;
    drawMap();
  }, 700);
}

function showLastMap() {
  byId("map-step").max = mapChosen().steps.length - 1;
  byId("map-step").value = mapChosen().steps.length - 1;
  drawMap();
}

function makeMaps() {
  if (!data.maps.length) return;
  byId("maps").hidden = false;
  byId("map-run").append(...data.maps.map((map, at) => make("option", { value: at }, map.run)));
  byId("map-run").addEventListener("change", showLastMap);
  byId("map-step").addEventListener("input", drawMap);
  byId("map-play").addEventListener("click", playMap);
  // Drawn when it comes into sight, like the curves.
  new IntersectionObserver((entries, own) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    own.disconnect();
    if (!byId("map").data) showLastMap();
  }, { rootMargin: "250px" }).observe(byId("map"));
}

// ---- films ----
function makeFilms() {
  if (!data.videos.length) return;
  byId("films").hidden = false;
  byId("videos").append(...data.videos.map((film) => {
    const caption = make("figcaption", {}, make("h3", {}, `${film.run} · ${film.name}`));
    if (!film.embedded) caption.append(make("span", { class: "chip warn" }, "linked, not in this file"));
    const video = make("video", { controls: true, preload: "auto", src: film.source, "aria-label": `Film ${film.name} of ${film.run}` });
    return make("figure", {}, caption, video, make("canvas", { class: "still" }));
  }));
}

// ---- what a reader must know ----
function makeRemarks() {
  const list = (title, kind, items) => (items.length ? [make("h3", {}, make("span", { class: `chip ${kind}` }, title)), make("ul", {}, ...items.map((text) => make("li", {}, text)))] : []);
  const label = (result) => `${data.methods[result.method]} on ${data.tasks[result.task]}`;
  const incomplete = data.results.filter((result) => result.gaps.length).map((result) => `${label(result)}: ${result.gaps.join("; ")}`);
  const odd = data.results.filter((result) => result.remarks.length).map((result) => `${label(result)}: ${result.remarks.join("; ")}`);
  const parts = [
    ...list("Could not be read", "bad", data.problems.map((own) => `${own.path} ${own.text}`)),
    ...list("Incomplete, and marked * in the tables", "warn", incomplete),
    ...list("To know", "warn", odd),
  ];
  byId("remarks").append(...(parts.length ? parts : [make("p", { class: "lead" }, "Every result is complete.")]));
}
