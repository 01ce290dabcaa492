import { h } from "./dom.js";

const drawn = new Set();
const WHOLE = [...Array(8).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (number) => css(`--c${(number % 8) + 1}`);
const dash = (number) => [[], [6, 4], [2, 3]][Math.floor(number / 8) % 3];

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.again()));

// A chart with axes, units, and a caption that says what to see.
export function chart({ title, sentence, x, y, log, places, format }) {
  const caption = h("figcaption", {}, sentence || "");
  const place = h("div", { class: "chart", role: "img", "aria-label": title });
  const element = h("figure", { class: "card" }, h("h3", {}, title), caption, place);
  let plot = null;
  let last = null;

  function again() {
    if (!last || !place.isConnected) return;
    plot?.destroy();
    const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid") },
      font: `12px ${css("--font")}`, labelFont: `12px ${css("--font")}`, labelSize: 22 };
    const series = [{ label: x }];
    const bands = [];
    const data = [last.x];
    last.lines.forEach((line, number) => {
      const stroke = line.colour ? css(line.colour) : colour(number);
      const points = { show: last.x.length < 60, size: 5, fill: stroke };
      series.push({ label: line.label, stroke, width: 2, dash: dash(number), points, spanGaps: true,
        value: (_, value) => (value === null || value === undefined ? "–" : (format || ((v) => Number(v.toPrecision(4))))(value)),
        paths: line.steps ? window.uPlot.paths.stepped({ align: 1 }) : undefined });
      data.push(line.y);
      if (line.low) {
        const faint = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
        series.push({ ...faint, label: `${line.label}, low` }, { ...faint, label: `${line.label}, high` });
        data.push(line.low, line.high);
        const alpha = stroke.startsWith("#") ? `${stroke}26` : stroke;
        bands.push({ series: [data.length - 1, data.length - 2], fill: alpha });
      }
    });
    const width = place.clientWidth || 480;
    plot = new window.uPlot({
      width, height: 250, series, bands,
      scales: { x: { time: false, distr: log ? 3 : 1 }, y: { range: last.range } },
      axes: [{ ...axis, label: x, values: places, ...(x === "round" ? { incrs: WHOLE } : {}) }, { ...axis, label: y, size: 58 }],
      legend: { show: last.lines.length > 1, live: false }, cursor: { y: false, drag: { x: false, y: false } },
    }, data, place);
    place.querySelectorAll(".u-legend .u-series").forEach((row) => { row.hidden = /, (low|high)$/.test(row.textContent); });
  }

  new ResizeObserver(() => { if (plot && place.clientWidth && Math.abs(plot.width - place.clientWidth) > 2) plot.setSize({ width: place.clientWidth, height: 250 }); }).observe(place);
  const made = { element, again, say: (text) => { caption.textContent = text; place.setAttribute("aria-label", `${title}. ${text}`); },
    set(found) { last = found; if (place.isConnected) again(); else requestAnimationFrame(again); } };
  drawn.add(made);
  return made;
}

// Several lines with their own x values, on one axis.
export function together(lines) {
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const at = new Map(places.map((place, number) => [place, number]));
  const spread = (xs, values) => {
    const found = new Array(places.length).fill(null);
    xs.forEach((place, number) => { found[at.get(place)] = values[number]; });
    return found;
  };
  return { x: places, lines: lines.map((line) => ({ ...line, y: spread(line.x, line.y),
    low: line.low && spread(line.x, line.low), high: line.high && spread(line.x, line.high) })) };
}
