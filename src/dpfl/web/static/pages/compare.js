import { chart, together } from "../chart.js";
import { get, h, link, proven, show, table } from "../dom.js";

const AXES = { rounds: ["by round", "round"], epsilon: ["by epsilon used", "epsilon used, an upper bound"], bytes: ["by bytes sent", "megabytes sent"], loss: ["loss by round", "round"] };

export default async function start(page, query) {
  const { runs } = await get("/api/runs");
  const chosen = new Set(query.getAll("name"));
  const readable = runs.filter((run) => run.state !== "unreadable");
  const body = h("div", {});
  const list = h("div", { class: "card pick" }, readable.slice(0, 400).map((run) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(run.name), onchange: () => { if (box.checked) chosen.add(run.name); else chosen.delete(run.name); again(); } });
    return h("label", { class: "row small" }, box, h("span", {}, run.name));
  }));
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Compare"), h("p", { class: "soft" }, "Runs that differ only by their seed are one row: their mean, with its 95 % interval."))),
    h("div", { class: "split" }, h("div", {}, h("h3", {}, "Runs"), list), body));

  async function again() {
    history.replaceState(null, "", chosen.size ? `/compare?${new URLSearchParams([...chosen].map((name) => ["name", name]))}` : "/compare");
    if (!chosen.size) { show(body, h("div", { class: "card empty" }, h("h2", {}, "Choose at least two runs"), h("p", { class: "soft" }, readable.length ? "Tick them in the list. Run an experiment with several seeds to see how much of a difference is chance." : "There are no runs yet."), !readable.length && h("p", {}, h("a", { class: "button", href: "/plan" }, "Plan a run")))); return; }
    const found = await get(`/api/compare?${new URLSearchParams([...chosen].map((name) => ["name", name]))}`);
    draw(found);
  }

  function draw(found) {
    const heads = [{ text: "Runs" }, { text: "Seeds", number: true }, { text: found.metric }, { text: "Proven" }, { text: "Claimed" }, { text: "Protects" }, { text: "Delta" }, { text: "Rounds" }];
    const rows = found.rows.map((row) => [h("span", { title: row.settings }, row.label), row.seeds, row.metric, proven({ level: row.level, short: row.proven }), row.claimed, row.unit, row.delta, row.rounds]);
    const charts = Object.keys(AXES).map((axis) => drawn(found, axis)).filter(Boolean);
    show(body, table(heads, rows, { label: "Runs side by side" }), found.notes.map((note) => h("p", { class: "soft small" }, note)),
      h("p", {}, h("a", { class: "button", href: `/report?${new URLSearchParams([...chosen].map((run) => ["name", run]))}` }, "Report on these runs")), h("div", { class: "grid" }, charts.map((one) => one.element)));
    for (const one of charts) one.begin();
  }

  function drawn(found, axis) {
    const percent = axis !== "loss" && found.percent ? 100 : 1, wide = axis === "bytes" ? 1e-6 : 1;
    const lines = found.rows.map((row) => ({ row, curve: row.curves[axis] })).filter(({ curve }) => curve.x.length).map(({ row, curve }) => {
      const band = curve.half.some((half) => half !== null);
      return { label: row.label, x: curve.x.map((place) => wide * place), y: curve.y.map((value) => percent * value),
        low: band && curve.y.map((value, number) => percent * (value - (curve.half[number] || 0))), high: band && curve.y.map((value, number) => percent * (value + (curve.half[number] || 0))) };
    });
    if (!lines.length) return null;
    const name = found.metric[0].toUpperCase() + found.metric.slice(1);
    const one = chart({ title: `${axis === "loss" ? "Test" : name} ${AXES[axis][0]}`, sentence: found.captions[axis], x: AXES[axis][1], y: axis === "loss" ? "loss, nats" : found.percent ? "test accuracy, %" : found.metric });
    const values = lines.flatMap((line) => line.y), room = 0.4 * (Math.max(...values) - Math.min(...values) || 1);
    return { ...one, begin: () => one.set({ ...together(lines), range: () => [Math.min(...values) - room, Math.max(...values) + room] }) };
  }

  await again();
}
