import { chart, together } from "../chart.js";
import { epsilon, get, h, link, measured, show, small, table } from "../dom.js";

const MIXED = "each task's own metric";
const AXES = { rounds: ["by round", "round"], epsilon: ["for the epsilon spent", "epsilon used, an upper bound"], bytes: ["for the bytes sent", "megabytes sent"], loss: ["loss by round", "round"] };

export default async function start(page, query) {
  const { runs } = await get("/api/runs");
  const chosen = new Set(query.getAll("name"));
  const readable = runs.filter((run) => run.state !== "unreadable");
  const body = h("div", {});
  const list = h("div", { class: "card pick" }, readable.slice(0, 400).map((run) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(run.name), onchange: () => { if (box.checked) chosen.add(run.name); else chosen.delete(run.name); again(); } });
    return h("label", { class: "row small" }, box, h("span", {}, run.name));
  }));
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Compare"), h("p", { class: "soft" }, "Runs that differ by their seed alone are one line: their mean, with its 95 % interval."))),
    h("div", { class: "split" }, h("div", {}, h("h3", {}, "Runs"), list), body));

  async function again() {
    history.replaceState(null, "", chosen.size ? `/compare?${new URLSearchParams([...chosen].map((name) => ["name", name]))}` : "/compare");
    if (!chosen.size) { show(body, h("div", { class: "card empty" }, h("h2", {}, "Choose two runs or more"), h("p", { class: "soft" }, readable.length ? "Tick them at the side. Give runs of one experiment several seeds to see how far chance alone goes." : "There are none yet."), !readable.length && h("p", {}, h("a", { class: "button", href: "/plan" }, "Plan a run")))); return; }
    const found = await get(`/api/compare?${new URLSearchParams([...chosen].map((name) => ["name", name]))}`);
    draw(found);
  }

  function draw({ groups, notes }) {
    const heads = [{ text: "Runs" }, { text: "Seeds", number: true }, { text: "Measured" }, { text: "Proven" }, { text: "Claimed" }, { text: "Protects" }, { text: "Delta" }, { text: "Rounds" }];
    const rows = groups.map((group) => [h("span", { title: group.settings }, group.label), String(group.runs.length), figure(group.measured),
      group.proven === "unbounded" ? h("span", { class: "wrong" }, "no guarantee") : group.proven === null ? h("span", { class: "soft" }, "at the end") : h("span", { class: "good" }, epsilon(group.proven)),
      group.claimed === null ? "nothing" : epsilon(group.claimed), group.unit === "none" ? "nobody" : group.unit ? `one ${group.unit}` : "–", group.delta === null || group.unit === "none" ? "–" : small(group.delta), [...new Set(group.rounds.map((count) => count ?? "–"))].join(", ")]);
    const names = [...new Set(groups.map((group) => group.measured?.name).filter(Boolean))];
    const name = names.length === 1 ? names[0] : MIXED;
    const made = Object.keys(AXES).map((axis) => drawn(groups, axis, name)).filter(Boolean);
    show(body, table(heads, rows, { label: "Runs side by side" }), notes.map((note) => h("p", { class: "soft small" }, note)),
      h("p", {}, h("a", { class: "button", href: `/report?${new URLSearchParams([...chosen].map((run) => ["name", run]))}` }, "Report of these")), h("div", { class: "grid" }, made.map((one) => one.element)));
    for (const one of made) one.begin();
  }

  const figure = (found) => !found ? "–" : found.low === null ? measured(found.name, found.mean) : `${measured(found.name, found.mean)} ± ${measured(found.name, (found.high - found.low) / 2)}`;

  function drawn(groups, axis, name) {
    const percent = axis !== "loss" && name === "accuracy" ? 100 : 1, wide = axis === "bytes" ? 1e-6 : 1;
    const lines = groups.map((group) => ({ group, curve: group.curves[axis] })).filter(({ curve }) => curve.x.length).map(({ group, curve }) => {
      const band = curve.half.some((half) => half !== null);
      return { label: group.label, x: curve.x.map((place) => wide * place), y: curve.y.map((value) => percent * value),
        low: band && curve.y.map((value, number) => percent * (value - (curve.half[number] || 0))), high: band && curve.y.map((value, number) => percent * (value + (curve.half[number] || 0))) };
    });
    if (!lines.length) return null;
    const less = axis === "loss" || groups.some((group) => group.measured?.less_is_better), side = less ? "lower" : "higher";
    const best = lines.reduce((a, b) => ((less ? b.y.at(-1) < a.y.at(-1) : b.y.at(-1) > a.y.at(-1)) ? b : a));
    const fair = { rounds: "Read it at equal rounds; privacy may differ.", epsilon: `At equal epsilon, the only fair comparison, the ${side} line is the better trade.`, bytes: `At equal bytes the ${side} line uses the network better.`, loss: "Lower is better." }[axis];
    const band = lines.some((line) => line.low) ? " A shaded band is where the mean over all seeds lies with 95 % confidence; with few seeds it is wide." : "";
    const one = chart({ title: `${axis === "loss" ? "Test" : name[0].toUpperCase() + name.slice(1)} ${AXES[axis][0]}`, x: AXES[axis][1], y: axis === "loss" ? "loss, nats" : name === "accuracy" ? "test accuracy, %" : name });
    one.say((lines.length > 1 && (name !== MIXED || axis === "loss") ? `${best.label} ends ${less ? "lowest" : "highest"}. ${fair}` : fair) + band);
    const values = lines.flatMap((line) => line.y), room = 0.4 * (Math.max(...values) - Math.min(...values) || 1);
    return { ...one, begin: () => one.set({ ...together(lines), range: () => [Math.min(...values) - room, Math.max(...values) + room] }) };
  }

  await again();
}
