import { ago, badge, begin, box as notice, get, h, link, measured, meter, proven, show, whole } from "../dom.js";

const STATES = ["all", "running", "paused", "stopped", "finished", "unreadable"];
const HEADS = [["Run", "name"], ["State", "state"], ["Measured", "measured"], ["Epsilon used", "epsilon"],
  ["Proven", "proven"], ["Rounds", "rounds"], ["Started", "started"]];
const FEW = 150;

export default async function start(page) {
  const { root } = await begin();
  const view = { search: "", state: "all", by: "started", down: true, all: false, chosen: new Set() };
  let found = { runs: [], starting: [], failed: {} };
  const list = h("div", {});
  const count = h("p", { class: "soft", role: "status" });
  const search = h("input", { type: "search", placeholder: "Search name, system, data, model", "aria-label": "Search runs",
    oninput: () => { view.search = search.value.toLowerCase(); draw(); } });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "State" });
  const compare = h("a", { class: "button", href: "/compare", hidden: true }, "Compare");
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Runs"), count), h("a", { class: "button", href: "/plan" }, "Plan a run")),
    h("div", { class: "row" }, search, chips, compare), h("br"), list);

  function draw() {
    show(chips, STATES.filter((state) => state === "all" || found.runs.some((run) => run.state === state)).map((state) =>
      h("button", { type: "button", "aria-pressed": String(view.state === state), onclick: () => { view.state = state; draw(); } }, state)));
    const shown = found.runs.filter((run) => (view.state === "all" || run.state === view.state)
      && [run.name, run.system, run.data, run.model, run.stopped_by].some((word) => String(word ?? "").toLowerCase().includes(view.search)));
    shown.sort((a, b) => (order(a[view.by], b[view.by]) || order(a.name, b.name)) * (view.down ? -1 : 1));
    const fewer = shown.length < found.runs.length ? `, ${whole(shown.length)} shown` : "";
    count.textContent = found.runs.length === 1 ? `One run in ${root}.` : `${whole(found.runs.length)} runs in ${root}${fewer}.`;
    compare.hidden = view.chosen.size < 1;
    compare.textContent = `Compare ${view.chosen.size}`;
    compare.href = `/compare?${new URLSearchParams([...view.chosen].map((name) => ["name", name]))}`;
    const nothing = h("div", { class: "card empty" }, h("p", {}, "No run matches. Clear the search, or choose another state."));
    show(list, others(), found.runs.length + found.starting.length === 0 ? empty() : shown.length ? rows(shown) : nothing);
  }

  // Missing values sort first and unbounded ones last.
  function order(a, b) {
    const place = (value) => (value === null || value === undefined ? 0 : value === "unbounded" ? 2 : 1);
    if (place(a) !== place(b)) return place(a) - place(b);
    return a < b ? -1 : a > b ? 1 : 0;
  }

  const others = () => [
    found.starting.map((name) => notice("running", `${name} is starting`, "Its first round begins in a few seconds.")),
    Object.entries(found.failed).map(([name, why]) => notice("nothing", `${name} did not start, or failed`, why)),
  ];

  function rows(shown) {
    const heads = HEADS.map(([text, key]) => h("th", { scope: "col", "aria-sort": key === view.by ? (view.down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => { view.down = view.by === key ? !view.down : true; view.by = key; draw(); } }, text)));
    const few = view.all ? shown : shown.slice(0, FEW);
    const more = few.length < shown.length
      && h("p", {}, h("button", { type: "button", onclick: () => { view.all = true; draw(); } }, `Show all ${whole(shown.length)}`));
    return [h("div", { class: "scroll" }, h("table", { class: "stack" }, h("thead", {}, h("tr", {}, h("td", {}), heads)), h("tbody", {}, few.map(row)))), more];
  }

  function row(run) {
    const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.name}`, checked: view.chosen.has(run.name), onchange: () => {
      if (box.checked) view.chosen.add(run.name); else view.chosen.delete(run.name);
      compare.hidden = view.chosen.size < 1;
      compare.textContent = `Compare ${view.chosen.size}`;
      compare.href = `/compare?${new URLSearchParams([...view.chosen].map((name) => ["name", name]))}`;
    } });
    const about = [run.system, run.variant === "published" ? "published" : null, run.model, run.data, run.seed !== null ? `seed ${run.seed}` : null];
    const what = run.state === "unreadable" ? run.error : about.filter(Boolean).join(" · ");
    const name = run.state === "unreadable" ? h("span", { class: "name" }, run.name)
      : h("a", { class: "name", href: link("/run", { name: run.name }) }, run.name);
    const rounds = `${whole(run.rounds || 0)}${run.budget.rounds ? ` of ${whole(run.budget.rounds)}` : ""}`;
    const used = run.guarantee.level === "nothing" ? h("span", { class: "soft" }, "–")
      : meter(run.epsilon_so_far);
    return h("tr", {}, h("td", { class: "check" }, box), h("td", {}, name, h("div", { class: "soft small" }, what)), h("td", {}, badge(run.state)),
      h("td", { "data-label": run.headline }, measured(run.headline, run.measured)), h("td", { "data-label": "epsilon used" }, used),
      h("td", { "data-label": "proven" }, proven(run.guarantee)), h("td", { "data-label": "rounds" }, rounds), h("td", { "data-label": "started", title: run.started }, ago(run.started)));
  }

  const empty = () => h("div", { class: "card empty" }, h("h2", {}, "No runs yet"),
    h("p", {}, "Plan a run here and watch it train. Or start the demo in a terminal, in the folder above this one:"),
    h("pre", {}, "dpfl run"), h("p", {}, h("a", { class: "button", href: "/plan" }, "Plan a run")));

  async function look() {
    if (document.hidden) return;
    const next = await get("/api/runs");
    const same = JSON.stringify(next) === JSON.stringify(found);
    found = next;
    if (!same && !list.contains(document.activeElement)) draw();
  }
  found = await get("/api/runs");
  draw();
  setInterval(() => look().catch(() => { count.textContent = "The server does not answer. Is dpfl ui still running?"; }), 2500);
}
