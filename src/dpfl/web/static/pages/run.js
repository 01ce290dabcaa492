import { chart } from "../chart.js";
import { badge, box, budgetOf, copying, get, h, link, meter, post, say, show, statementTable, table, tile, verdict, when, whole } from "../dom.js";
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

  function top() {
    const budget = run.epsilon_so_far;
    const gauge = budget && h("div", { class: "card" }, h("h3", { class: "small soft" }, "Privacy budget"), meter(budget, { large: true }));
    show(parts.top, run.warnings.map((warning) => box("warn", "Warning", warning)), verdict(run), gauge);
  }

  function tiles() {
    show(parts.tiles, h("div", { class: "tiles" }, run.tiles.map(tile)));
  }

  function curves() {
    const rows = run.rows, percent = run.line.headline === "accuracy" ? 100 : 1, most = run.line.budget.epsilon;
    const values = rows.round.map((_, number) => { const value = rows.headline[number] ?? rows.accuracy[number]; return value === null ? null : value * percent; });
    put("headline", { x: rows.round, lines: [{ label: headline, y: values }] });
    put("loss", { x: rows.round, lines: [{ label: "loss", y: rows.loss, colour: "--c2" }] });
    const lines = [{ label: "used, an upper bound", y: rows.epsilon, colour: "--proven" }];
    if (most) lines.push({ label: "allowed", y: rows.round.map(() => most), colour: "--bad" });
    put("epsilon", { x: rows.round, lines });
    put("tau", { x: rows.round, lines: [{ label: "tau", y: rows.steps, colour: "--c5", steps: true }], range: (_, low, high) => [0, Math.max(high, 1) * 1.1] });
    const ratio = run.signal.ratio;
    put("signal", { x: run.signal.round, lines: [{ label: "step over noise", y: ratio, colour: "--c6" }, { label: "noise alone", y: ratio.map(() => 1), colour: "--c8" }] });
  }

  // A chart with its caption in the words of the server, which has none where there is nothing to see.
  function put(which, data) {
    const caption = run.captions[which];
    charts[which].element.hidden = !caption;
    if (caption) { charts[which].say(caption); charts[which].set(data); }
  }

  function clients() {
    const { accounts, lost, more, none } = run.clients;
    if (!accounts.length) { show(parts.clients, h("p", { class: "soft" }, none)); return; }
    const ended = state === "finished";
    const rows = accounts.map((one) => {
      const budget = budgetOf(run, one.name);
      return [one.name, h("span", { class: one.level }, one.state), one.releases, ...(ended ? [] : [one.remaining]), budget ? meter(budget, { what: "proven" }) : "at the end"];
    });
    const heads = [{ text: "Account" }, { text: "State" }, { text: "Releases", number: true }, ...(ended ? [] : [{ text: "Remaining", number: true }]), { text: "Proven epsilon and limit" }];
    const replies = lost.map(({ round, client, reason }) => (round === null ? reason : `round ${round}, ${client}: ${reason}`));
    show(parts.clients, table(heads, rows, { label: "Accounts" }), more > 0 && h("p", { class: "soft" }, `and ${whole(more)} more`),
      lost.length > 0 && h("details", {}, h("summary", {}, `${lost.length} replies were refused or lost`), h("pre", { tabindex: "0" }, replies.join("\n"))));
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
    run.epsilon_so_far = event.epsilon_so_far;
    Object.assign(run.captions, event.captions);
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
