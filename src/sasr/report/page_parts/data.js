// ---- the data: decoded when it is first looked at ----
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function bytes(text) {
  const letters = atob(text), found = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) found[at] = letters.charCodeAt(at);
  return found;
}

// Whole numbers from 0 to top stand for low to high; the one above stands for NaN.
function unpack(text, low, high, bits) {
  const raw = bytes(text);
  const whole = bits === 16 ? new Uint16Array(raw.buffer) : raw;
  const top = bits === 16 ? 65534 : 254;
  return Array.from(whole, (value) => (value > top ? NaN : low + (value / top) * (high - low)));
}

function rows(values, width) {
  const found = [];
  for (let start = 0; start < values.length; start += width) found.push(values.slice(start, start + width));
  return found;
}

function decoded(result) {
  if (!result.decoded) {
    const steps = Array.from(new Uint32Array(bytes(result.steps).buffer));
    const width = Math.max(1, steps.length);
    const [low, high] = result.range;
    result.decoded = {
      steps,
      returns: rows(unpack(result.returns, low, high, 16), width),
      returnsIqm: rows(unpack(result.iqm, low, high, 16), width),
      success: result.success && rows(unpack(result.success, 0, 1, 8), width),
      successIqm: result.successIqm && rows(unpack(result.successIqm, 0, 1, 8), width),
    };
  }
  return result.decoded;
}

const resultAt = new Map(data.results.map((result) => [`${result.task}/${result.method}`, result]));

// ---- what is chosen ----
const state = {
  task: new Set(data.tasks.keys()),
  method: new Set(data.preselected),
  show: "mean",
  smoothing: 1,
  x: "steps",
  y: "return",
  reference: true,
};

function isDark() {
  const asked = document.documentElement.dataset.theme;
  return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colour(method) {
  const list = isDark() ? data.colours.dark : data.colours.light;
  return list[method % list.length];
}

function dash(method) {
  return ["solid", "dash", "dot"][Math.floor(method / data.colours.light.length) % 3];
}

function faint(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function say(text) {
  const place = byId("said");
  place.textContent = text;
  place.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => place.classList.remove("on"), 1800);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    // No clipboard for pages from disk in some browsers: the old way.
    const area = make("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied`);
}
