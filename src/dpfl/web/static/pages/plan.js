import { chart } from "../chart.js";
import { badge, begin, get, h, link, post, say, short, show, table, up, whole } from "../dom.js";

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
    const best = found.recommended;
    page.dataset.exact = String(found.exact);
    show(said, found.exact ? badge("finished", "computed by the accountant") : badge("running", "a first estimate, may still change"), h("p", { class: "say", role: "status" }, "For epsilon ", h("b", {}, String(wanted.epsilon)), ` (for one sample, delta ${words(wanted.delta)}) over `, h("b", {}, `${whole(wanted.rounds)} rounds`), ": sampling rate ", h("b", {}, short(best.sampling_rate)),
      ", ", h("b", {}, `${best.tau} local ${best.tau === 1 ? "step" : "steps"}`), " per round, noise multiplier ", h("b", {}, up(best.noise_multiplier)), best.rate ? [", learning rate ", h("b", {}, short(best.rate))] : "", "."),
      h("p", { class: "soft small" }, `${whole(best.samples)} samples per client and round; ${whole(best.parameters)} parameters. Noise and learning rate are computed again when the run starts.`),
      found.warning && h("p", { class: "wrong" }, found.warning));
    const most = Math.max(...Object.values(found.bought), 1);
    const names = { pld: "PLD, which limits the run", rdp: "RDP", "rdp-classic": "RDP, classic conversion" };
    show(bars, h("h3", {}, "Steps that each accountant allows with this noise"), h("p", { class: "soft small" }, "All three bounds hold. A looser accountant certifies fewer steps for the same epsilon."),
      h("div", { class: "bars" }, Object.entries(found.bought).map(([by, count]) => { const fill = h("div", { class: "fill" }); fill.style.width = `${100 * count / most}%`;
        return [h("span", {}, names[by] || by), h("div", { class: "track" }, fill), h("span", {}, whole(count))]; })));
    const taus = Object.keys(found.curve.total);
    noise.say(`Less noise is better. ${short(best.sampling_rate)} is the smallest sampling rate within 5 % of the least noise; larger batches hardly help.`);
    noise.set({ x: found.curve.q, lines: taus.map((tau) => ({ label: `tau ${tau}`, y: found.curve.total[tau] })) });
    const rates = [...new Set(found.cells.map((cell) => cell.q))];
    show(cells, table([{ text: "q" }, ...taus.map((tau) => ({ text: `tau ${tau}: z, total noise`, number: true }))], rates.map((q) => [short(q), ...taus.map((tau) => {
      const cell = found.cells.find((one) => one.q === q && String(one.tau) === tau);
      return cell ? h(cell.chosen ? "b" : "span", { class: cell.chosen ? "good" : null }, `${cell.noise.toFixed(2)}, ${cell.total.toFixed(3)}${cell.chosen ? " ✓" : ""}`) : "–";
    })]), { label: "All choices" }), h("p", { class: "soft small" }, found.exact ? "Computed by the accountant that limits the run." : "Estimated by the central limit theorem while you move a slider; computed when you stop."));
    show(assumed, h("details", {}, h("summary", {}, "Assumptions"), h("ul", {}, found.assumptions.map((line) => h("li", {}, line)))));
  }

  await fetched(true);
}
