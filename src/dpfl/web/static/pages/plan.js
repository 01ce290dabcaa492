import { chart } from "../chart.js";
import { badge, begin, get, h, link, post, say, show, table, whole } from "../dom.js";

const FIELDS = [["epsilon", "Epsilon", 0.1, 20, 4, 0.01], ["delta", "Delta", 1e-9, 1e-2, 1e-5, "any"], ["rounds", "Rounds", 1, 2000, 80, 1],
  ["clients", "Clients", 1, 1000, 10, 1], ["size", "Samples per client", 20, 100000, 800, 1]];
const STEPS = 400;
const words = (value) => (value < 1e-3 ? value.toExponential().replace("e-0", "e-") : String(value));

export default async function start(page) {
  await begin();
  const known = await get("/api/planner");
  const wanted = Object.fromEntries(FIELDS.map(([name, , , , value]) => [name, value]));
  Object.assign(wanted, { data: known.data[0], model: "scattering-linear", seed: 0 });
  const said = h("div", { class: "card" }), bars = h("div", { class: "card" }), cells = h("div", {}), assumed = h("div", {});
  const noise = chart({ title: "Total noise by sampling rate", x: "sampling rate q (log scale)", y: "total noise, z / (q √(τR))", log: true,
    places: (_, splits) => splits.map((value) => ([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].some((one) => Math.abs(one - value) < 1e-9) ? String(value) : "")) });
  const name = h("input", { type: "text", class: "wide", id: "name", value: `plan-${new Date().toISOString().slice(0, 16).replace(/[-:]/g, "").replace("T", "-")}`, maxlength: "80" });
  const startButton = h("button", { type: "button", class: "first", onclick: begins }, "Start this run");
  const download = h("a", { class: "button", href: "#", download: "experiment.toml" }, "Download experiment.toml");
  const choice = (field, title, options) => {
    const select = h("select", { id: field, onchange: () => { wanted[field] = select.value; ask(); } }, options.map((one) => h("option", { value: one, selected: one === wanted[field] }, one)));
    return h("div", { class: "field" }, h("label", { for: field }, title), select);
  };

  function field([key, title, low, high, , step]) {
    const place = (value) => Math.round(STEPS * Math.log(value / low) / Math.log(high / low));
    const slider = h("input", { type: "range", min: "0", max: String(STEPS), "aria-label": `${title}, slider`, value: String(place(wanted[key])) });
    const box = h("input", { type: "number", id: key, min: String(key === "delta" ? 0 : low), step: String(step), value: words(wanted[key]) });
    slider.addEventListener("input", () => {
      const value = low * (high / low) ** (slider.value / STEPS);
      wanted[key] = step === 1 ? Math.round(value) : Number(value.toPrecision(2));
      box.value = words(wanted[key]);
      slider.setAttribute("aria-valuetext", box.value);
      ask();
    });
    box.addEventListener("input", () => {
      const value = Number(box.value);
      if (!(value > 0)) return;
      wanted[key] = step === 1 ? Math.round(value) : value;
      slider.value = String(Math.max(0, Math.min(STEPS, place(value))));
      ask();
    });
    return h("div", { class: "field" }, h("label", { for: key }, title, box), slider);
  }

  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Planner"), h("p", { class: "soft" }, "What a budget buys, before anything is spent. The planner reads no data: clients declare their sizes."))),
    h("div", { class: "plan" }, h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); begins(); } }, FIELDS.map(field), choice("data", "Data", known.data), choice("model", "Model", known.models),
      h("div", { class: "field" }, h("label", { for: "name" }, "Name of the run"), name), h("div", { class: "row" }, startButton, download)),
    h("div", {}, said, h("br"), bars, h("br"), noise.element, h("h2", {}, "All choices"), cells, assumed)));

  async function begins() {
    startButton.disabled = true;
    try {
      const made = await post("/api/start", { ...wanted, name: name.value.trim() });
      say("The run is starting. Its first round begins in a few seconds.");
      for (let tries = 0; tries < 240; tries += 1) {
        await new Promise((done) => { setTimeout(done, 500); });
        const { runs, failed } = await get("/api/runs");
        if (failed[made.name]) throw new Error(failed[made.name]);
        if (runs.some((run) => run.name === made.name)) { location.href = link("/run", { name: made.name }); return; }
      }
      location.href = "/";
    } catch (error) { say(error.message); startButton.disabled = false; }
  }

  let waiting, resting, under;
  function ask() {
    clearTimeout(waiting);
    clearTimeout(resting);
    waiting = setTimeout(() => fetched(false), 60);
    resting = setTimeout(() => fetched(true), 600);
  }

  async function fetched(exact) {
    under?.abort();
    under = new AbortController();
    download.href = `/api/experiment?${new URLSearchParams(wanted)}`;
    try {
      draw(await get(`/api/plan?${new URLSearchParams({ ...wanted, exact })}`, under.signal));
    } catch (error) {
      if (error.name !== "AbortError") show(said, h("p", { class: "wrong", role: "alert" }, error.message));
    }
  }

  function draw(found) {
    const { plan, status, curve } = found, note = (text) => h("p", { class: "soft small" }, text);
    page.dataset.exact = String(found.exact);
    const settings = plan.settings.map((one, place) => [place ? ", " : "", `${one.name} `, h("b", {}, one.value), one.note ? ` (${one.note})` : ""]);
    show(said, badge(found.exact ? "finished" : "running", status.title), h("p", { class: "say", role: "status" }, `${plan.lead}: `, settings, "."),
      note(plan.details.join(" ")), plan.warnings.map((warning) => h("p", { class: "wrong" }, warning)));
    const most = Math.max(...plan.steps.bars.map((one) => one.steps), 1);
    show(bars, h("h3", {}, plan.steps.title), note(plan.steps.note),
      h("div", { class: "bars" }, plan.steps.bars.map((one) => { const fill = h("div", { class: "fill" }); fill.style.width = `${100 * one.steps / most}%`;
        return [h("span", {}, one.label), h("div", { class: "track" }, fill), h("span", {}, whole(one.steps))]; })));
    noise.say(curve.sentence);
    noise.set({ x: curve.q, lines: Object.entries(curve.total).map(([tau, total]) => ({ label: `tau ${tau}`, y: total })) });
    const shown = (cell) => h(cell.recommended ? "b" : "span", { class: cell.recommended ? "good" : cell.allowed ? null : "soft" }, cell.text);
    show(cells, note(plan.legend), table(plan.headings.map((text, place) => ({ text, number: place > 0 })), plan.rows.map(([rate, row]) => [rate, ...row.map(shown)]), { label: "All choices" }),
      note(status.sentence));
    show(assumed, h("details", {}, h("summary", {}, "Assumptions"), h("ul", {}, plan.assumptions.map((line) => h("li", {}, line)))));
  }

  await fetched(true);
}
