// ---- plotly.js, packed: the largest part of the page by far ----
// Browsers read a script with an address in another thread, while this one makes the tables.
async function unpackPlotly() {
  const stream = new Blob([bytes(byId("plotly").textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = await new Response(stream, { headers: { "Content-Type": "text/javascript" } }).blob();
  const address = URL.createObjectURL(script);
  await new Promise((done, failed) => document.head.append(make("script", { src: address, onload: done, onerror: failed })));
  URL.revokeObjectURL(address);
}

// Until plotly is there nothing is drawn; what was chosen meanwhile is.
const canDraw = () => "Plotly" in window;
