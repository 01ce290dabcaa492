import { chart } from "../chart.js";
import { badge, box, copying, epsilon, get, h, link, meter, post, say, show, soFar, statementTable, table, tile, verdict, when, whole } from "../dom.js";
import { nodes } from "../nodes.js";

const MOST = 4000;

export default async function start(page, query) {
  const name = query.get("name") || "";
  let run = await get(link("/api/run", { name }));
  document.title = `${name} · dpfl`;
  let state = run.line.state;
  const parts = Object.fromEntries(["buttons", "state", "times", "top", "tiles", "clients", "rest"].map((part) => [part, h("div", {})]));
  parts.buttons.className = "row";
  const line = run.line;
  const headline = line.headline === "accuracy" ? "Test accuracy" : `${line.headline}, on the test set`;
  const charts = {
    headline: chart({ title: headline, x: "round", y: line.headline === "accuracy" ? "accuracy, %" : line.headline }),
    loss: chart({ title: "Test loss", x: "round", y: "loss, nats" }),
    epsilon: chart({ title: "Epsilon used", x: "round", y: "epsilon" }),
    tau: chart({ title: "Local steps, tau", x: "round", y: "steps per client" }),
    signal: chart({ title: "Signal to noise", x: "round", y: "step length over noise length" }),
  };
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, name), h("p", { class: "soft" }, run.lead), parts.times), parts.state, parts.buttons),
    parts.top, parts.tiles, h("h2", {}, "Progress"), h("div", { class: "grid", id: "charts" }, Object.values(charts).map((one) => one.element)),
    h("h2", {}, "Accounts"), parts.clients, parts.rest);

  async function act(what) {
    for (const button of parts.buttons.querySelectorAll("button")) button.disabled = true;
    try {
      await post(link(`/api/run/${what}`, { name }));
      say({ pause: "The run is paused.", stop: "The run is stopping. Nothing is lost, and you can resume it.", resume: "The run continues." }[what]);
      setTimeout(follow, 300);
    } catch (error) { say(error.message); buttons(); }
  }

  function buttons() {
    const button = (what, text, first) => h("button", { type: "button", class: first ? "first" : null, onclick: () => act(what) }, text);
    const now = { running: [button("pause", "Pause"), button("stop", "Stop")], paused: [button("resume", "Continue", true), button("stop", "Stop")],
      stopped: [button("resume", "Resume", true)] }[state] || [];
    const ended = state === "finished" && [h("a", { class: "button", href: link("/privacy", { name }) }, "Ledgers"),
      run.line.certificate && h("a", { class: "button", href: link("/certificate", { name }) }, "Certificate")];
    show(parts.buttons, now, h("a", { class: "button", href: link("/report", { name }) }, "Report"), ended);
    show(parts.state, badge(state));
    show(parts.times, h("p", { class: "soft small" }, `Started ${when(run.line.started)}${state === "finished" && run.line.ended ? `, ended ${when(run.line.ended)}` : ""}.`));
  }

  function used() {
    const last = run.rows.epsilon.findLast((value) => value !== null) ?? null;
    return state === "finished" ? run.line.epsilon ?? last : soFar(run.line, last);
  }

  function top() {
    const stated = run.statement, open = stated.unit !== "none" && line.variant !== "published";
    const gauge = open && h("div", { class: "card" }, h("h3", { class: "small soft" }, "Privacy budget"), meter({ value: used(), most: run.line.budget.epsilon,
      guarantee: run.line.guarantee, proven: stated.proven, large: true }));
    show(parts.top, run.warnings.map((warning) => box("warn", "Warning", warning)), verdict(run), gauge);
  }

  function tiles() {
    show(parts.tiles, h("div", { class: "tiles" }, run.tiles.map(tile)));
  }

  function curves() {
    const rows = run.rows, percent = run.line.headline === "accuracy" ? 100 : 1;
    const values = rows.round.map((_, number) => { const value = rows.headline[number] ?? rows.accuracy[number]; return value === null ? null : value * percent; });
    const known = values.filter((value) => value !== null), now = { finished: "at the end", stopped: "when it was stopped" }[state] || "now";
    const best = known.reduce((a, b) => (run.line.less_is_better ? Math.min(a, b) : Math.max(a, b)), known[0]);
    put("headline", known.length > 0, { x: rows.round, lines: [{ label: headline, y: values }] }, () => `${known.at(-1).toFixed(percent === 100 ? 2 : 4)}${percent === 100 ? " %" : ""} ${now}, at best ${best.toFixed(percent === 100 ? 2 : 4)}. If the curve is still ${run.line.less_is_better ? "falling" : "rising"}, a larger budget would help.`);
    const losses = rows.loss.filter((value) => value !== null);
    put("loss", losses.length > 0, { x: rows.round, lines: [{ label: "loss", y: rows.loss, colour: "--c2" }] }, () => `${losses.at(-1).toFixed(3)} ${now}. If it grows while the accuracy stays the same, the learning rate is too high.`);
    const spent = rows.epsilon.filter((value) => value !== null), most = run.line.budget.epsilon;
    const lines = [{ label: "used, an upper bound", y: rows.epsilon, colour: "--proven" }];
    if (most) lines.push({ label: "allowed", y: rows.round.map(() => most), colour: "--bad" });
    put("epsilon", spent.length > 0, { x: rows.round, lines }, () => `${epsilon(used())} ${most ? `of ${most} allowed` : "so far"} (${run.line.guarantee.scope}). Every release is in a ledger before it leaves a client.`);
    put("tau", rows.round.length > 0, { x: rows.round, lines: [{ label: "tau", y: rows.steps, colour: "--c5", steps: true }], range: (_, low, high) => [0, Math.max(high, 1) * 1.1] },
      () => `${whole(rows.steps.at(-1))} in the last round. ${run.statement.unit === "none" ? "A round costs the same bytes, however many steps it has" : "Each step costs privacy, and each round costs bytes"}.`);
    const ratio = run.signal.ratio;
    put("signal", ratio.length > 0, { x: run.signal.round, lines: [{ label: "step over noise", y: ratio, colour: "--c6" }, { label: "noise alone", y: ratio.map(() => 1), colour: "--c8" }] },
      () => `The last step is ${ratio.at(-1).toPrecision(3)} times as long as its noise alone. A step that is no longer than its noise carries no information by itself.`);
  }

  function put(which, there, data, sentence) {
    charts[which].element.hidden = !there;
    if (there) { charts[which].say(sentence()); charts[which].set(data); }
  }

  function clients() {
    const { accounts, lost, more } = run.clients, spent = run.statement.per_client || {};
    if (!accounts.length) { show(parts.clients, h("p", { class: "soft" }, run.statement.unit === "none" ? "This run adds no noise, so it has no accounts." : "No round has ended yet.")); return; }
    const missed = {}, ended = state === "finished";
    for (const line of lost) { const found = /^round (\d+), client (\d+): (.*)$/s.exec(line); if (found) missed[found[2]] = `${found[3]} (round ${found[1]})`; }
    const rows = accounts.map((one, number) => {
      const figure = spent[one.name] ?? spent["every client"];
      const now = missed[number] ? h("span", { class: "wrong" }, missed[number]) : one.remaining === 0 && (!ended || run.line.stopped_by === "epsilon") ? h("span", { class: "soft" }, "budget spent")
        : h("span", { class: "good" }, ended ? "took part" : "takes part");
      return [one.name, now, whole(one.paid), ...(ended ? [] : [one.remaining > 1e8 ? "no limit" : whole(one.remaining)]),
        figure === undefined ? "at the end" : meter({ value: figure, most: run.limits[one.name] ?? run.limits["every client"], guarantee: run.line.guarantee, what: "proven" })];
    });
    const heads = [{ text: "Account" }, { text: "State" }, { text: "Releases", number: true }, ...(ended ? [] : [{ text: "Remaining", number: true }]), { text: "Proven epsilon and limit" }];
    show(parts.clients, table(heads, rows, { label: "Accounts" }), more > 0 && h("p", { class: "soft" }, `and ${whole(more)} more`),
      lost.length > 0 && h("details", {}, h("summary", {}, `${lost.length} replies were refused or lost`), h("pre", { tabindex: "0" }, lost.join("\n"))));
  }

  function rest() {
    const repeat = run.command && h("div", { class: "card" }, h("div", { class: "row" }, h("h3", {}, "This command repeats the run"), copying(run.command)), h("pre", { tabindex: "0" }, run.command));
    show(parts.rest, nodes(run), run.lines.length > 0 && [h("h2", {}, "Privacy statement"), statementTable(run.lines)], h("h2", {}, "The experiment"), repeat || null,
      h("details", {}, h("summary", {}, "As requested, and as resolved"), h("pre", { tabindex: "0" }, run.experiment)));
  }

  function draw() { buttons(); top(); tiles(); curves(); clients(); rest(); }

  function take(event) {
    const known = run.rows.round.at(-1) || 0;
    const fresh = event.rows.round.map((round) => round > known);
    for (const column of Object.keys(event.rows)) event.rows[column] = event.rows[column].filter((_, number) => fresh[number]);
    for (const column of Object.keys(run.rows)) run.rows[column].push(...event.rows[column]);
    if (run.rows.round.length > MOST) for (const column of Object.keys(run.rows)) run.rows[column] = run.rows[column].filter((_, number) => number % 2 || number > MOST - 50);
    run.clients = event.clients;
    run.tiles = [...event.tiles, ...run.tiles.slice(event.tiles.length)];
    state = event.state;
    buttons(); top(); tiles(); curves(); clients();
  }

  function gone(why) {
    state = "gone";
    show(page, h("div", { class: "card empty" }, h("h1", {}, "This run is gone"), h("p", {}, why), h("p", {}, h("a", { href: "/" }, "All runs"))));
  }

  let source;
  function follow() {
    source?.close();
    if (document.hidden) return; // a browser has six connections to a server, and a stream keeps one for itself
    source = new EventSource(link("/api/events", { name, after: run.rows.round.at(-1) || 0 }));
    source.onmessage = async (message) => {
      const event = JSON.parse(message.data);
      if (event.gone) { source.close(); gone(event.why); return; }
      if (event.rows.round.length || event.state !== state) take(event); else { run.clients = event.clients; clients(); }
      if (event.over) {
        source.close();
        try { run = await get(link("/api/run", { name })); } catch (error) { (error.answered ? gone : say)(error.message); return; }
        state = run.line.state;
        draw();
        if (state === "running" || state === "paused") setTimeout(follow, 500);
      }
    };
  }

  document.addEventListener("visibilitychange", () => { if (document.hidden) source?.close(); else if (state !== "finished" && state !== "gone") follow(); });
  draw();
  if (state !== "finished") follow();
}
