// ---- tables that sort ----
const sorting = { overall: null, measure: null };
const tableNamed = (key) => data.tables.find((table) => table.key === key);

function chosenTable(place) {
  return tableNamed(place === "overall" ? "overall" : byId("measure").value);
}

function drawTable(place) {
  const table = chosenTable(place), byTask = place === "measure";
  const columns = table.columns.map((name, at) => ({ name, at })).filter(({ at }) => !at || !byTask || state.method.has(at - 1));
  let lines = table.rows.filter((row) => {
    const name = row[0].value;
    return byTask ? state.task.has(data.tasks.indexOf(name)) : state.method.has(data.methods.indexOf(name));
  });
  const by = sorting[place];
  if (by && columns.some((column) => column.at === by.column)) lines = sorted(lines, by);
  const head = columns.map(({ name, at }) => {
    const order = by && by.column === at ? (by.descending ? "descending" : "ascending") : "none";
    return make("th", { scope: "col", "aria-sort": order }, make("button", { type: "button", onclick: () => sortBy(place, at) }, name));
  });
  const body = lines.map((row) => make("tr", {}, ...columns.map(({ at }) => tableCell(row, at, columns, byTask ? table.good : ""))));
  byId(`table-${place}`).replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
  byId(`notes-${place}`).replaceChildren(...table.notes.map((note) => make("p", {}, note)));
  if (byTask) byId("measure-title").textContent = `${table.title}.`;
}

function tableCell(row, at, columns, good) {
  if (!at) return make("th", { scope: "row" }, row[0].text);
  const values = columns.slice(1).map((column) => row[column.at].value).filter((value) => typeof value === "number" && value < 1e299);
  const own = row[at].value, low = Math.min(...values), high = Math.max(...values);
  const ranked = good && columns.slice(1).every((column) => !row[column.at].incomplete);
  if (!ranked || typeof own !== "number" || own > 1e299 || !(high > low)) return make("td", {}, row[at].text);
  const share = good === "high" ? (own - low) / (high - low) : (high - own) / (high - low);
  return make("td", { style: `--share:${share.toFixed(3)}`, class: share === 1 ? "best" : null }, row[at].text);
}

function sorted(lines, { column, descending }) {
  const value = (row) => (row[column].value === null ? NaN : row[column].value);
  const missing = (v) => typeof v === "number" && Number.isNaN(v);
  return lines.slice().sort((one, other) => {
    const a = value(one), b = value(other);
    if (missing(a) || missing(b)) return missing(a) - missing(b);  // nothing known: last, whichever way
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return descending ? -order : order;
  });
}

function sortBy(place, column) {
  const before = sorting[place], table = chosenTable(place);
  const first = column > 0 && table.good !== "low";
  sorting[place] = { column, descending: before && before.column === column ? !before.descending : first };
  drawTable(place);
  const heads = [...byId(`table-${place}`).querySelectorAll("th[aria-sort] button")];
  heads.find((button) => button.parentElement.getAttribute("aria-sort") !== "none")?.focus();
  say(`sorted by ${table.columns[column]}, ${sorting[place].descending ? "highest" : "lowest"} first`);
}

function makeTables() {
  const choices = data.tables.filter((table) => table.key !== "overall");
  byId("measure").append(...choices.map((table) => make("option", { value: table.key }, table.name)));
  byId("measure").addEventListener("change", () => { sorting.measure = null; drawTable("measure"); });
  for (const place of document.querySelectorAll(".copies")) {
    const kinds = [["markdown", "Markdown"], ["latex", "LaTeX"], ["csv", "CSV"]];
    place.append("Copy all as ", ...kinds.map(([kind, name]) => make("button", {
      type: "button", class: "plain", onclick: () => copy(chosenTable(place.dataset.for).copies[kind], name),
    }, name)));
  }
}

function drawTables() {
  drawTable("overall");
  drawTable("measure");
}
