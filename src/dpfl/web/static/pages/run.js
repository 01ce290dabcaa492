import { chart } from "../chart.js";
import { badge, copying, down, epsilon, get, h, link, measured, meter, post, proven as holds, say, show, small, soFar, table, told, up, when, whole, words } from "../dom.js";
import { nodes } from "../nodes.js";

const MOST = 4000;
const WHY = { rounds: "all rounds were made", epsilon: "the next step would pass epsilon", bytes: "the bytes are used up", seconds: "the time is used up" };

export default async function start(page, query) {
  const name = query.get("name") || "";
  let run = await get(link("/api/run", { name }));
  document.title = `${name} · dpfl`;
  let state = run.line.state;
  const parts = Object.fromEntries(["buttons", "state", "times", "top", "tiles", "clients", "rest"].map((part) => [part, h("div", {})]));
  parts.buttons.className = "row";
  const line = run.line;
  const about = `${line.system}${line.variant === "published" ? ", as published" : ""} with ${line.model} over ${whole(line.clients)} clients${line.data ? ` of ${line.data}` : ""}, seed ${line.seed}`;
  const headline = line.headline === "accuracy" ? "Test accuracy" : `${line.headline}, on the test set`;
  const charts = {
    headline: chart({ title: headline, x: "round", y: line.headline === "accuracy" ? "accuracy, %" : line.headline }),
    loss: chart({ title: "Test loss", x: "round", y: "loss, nats" }),
    epsilon: chart({ title: "Epsilon used", x: "round", y: "epsilon" }),
    tau: chart({ title: "Local steps, tau", x: "round", y: "steps a client" }),
    signal: chart({ title: "Signal to noise", x: "round", y: "step over noise alone" }),
  };
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, name), h("p", { class: "soft" }, about), parts.times), parts.state, parts.buttons),
    parts.top, parts.tiles, h("h2", {}, "As it goes"), h("div", { class: "grid", id: "charts" }, Object.values(charts).map((one) => one.element)),
    h("h2", {}, "Accounts"), parts.clients, parts.rest);

  async function act(what) {
    for (const button of parts.buttons.querySelectorAll("button")) button.disabled = true;
    try {
      await post(link(`/api/run/${what}`, { name }));
      say({ pause: "Paused: it holds where it is.", stop: "Stopping; nothing is lost, and it can be resumed.", resume: "It goes on." }[what]);
      setTimeout(follow, 300);
    } catch (error) { say(error.message); buttons(); }
  }

  function buttons() {
    const button = (what, text, first) => h("button", { type: "button", class: first ? "first" : null, onclick: () => act(what) }, text);
    const now = { running: [button("pause", "Pause"), button("stop", "Stop")], paused: [button("resume", "Go on", true), button("stop", "Stop")],
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
    const stated = run.statement, proven = stated.proven;
    const bare = stated.unit === "none" || (run.line.variant === "published");
    const box = proven === undefined ? (bare ? told("warn", "Nothing is proven of this system while it runs", "See its statement at the end.") : null)
      : typeof proven === "number" ? holds(run, `Epsilon ${up(proven)} at delta ${small(stated.delta)} for one ${stated.unit} (${stated.neighbours}), against ${stated.adversary}; by ${stated.accountant}.`)
        : told("nothing", "No guarantee", `No epsilon holds. What leaves unprotected: ${(stated.unaccounted || []).join("; ") || "a release without noise"}.`);
    const gauge = !bare && h("div", { class: "card" }, h("h3", { class: "small soft" }, "Privacy budget"), meter({ value: used(), most: run.line.budget.epsilon,
      unit: stated.unit, delta: stated.delta ?? run.line.budget.delta, proven, large: true }));
    show(parts.top, run.warnings.map((warning) => told("warn", "Warning", warning)), box, gauge);
  }

  function tiles() {
    const rows = run.rows, last = rows.round.length - 1;
    const tile = (kind, title, text, note) => h("div", { class: `tile ${kind}` }, h("span", { class: "kind" }, title), h("strong", {}, text), h("span", {}, note));
    const seen = rows.headline.findLastIndex((value, number) => (value ?? rows.accuracy[number]) !== null);
    const value = run.line.measured ?? (seen >= 0 ? rows.headline[seen] ?? rows.accuracy[seen] : null);
    const whose = run.intervals[run.line.headline];
    const range = whose ? `95 % interval ${measured(run.line.headline, whose[0])} to ${measured(run.line.headline, whose[1])}` : value === null ? "not measured yet" : run.measured_on;
    const most = run.line.budget.rounds, made = last >= 0 ? rows.round[last] : 0;
    const found = [tile("", run.line.headline, measured(run.line.headline, value), range),
      tile("", "Rounds", `${whole(made)}${most ? ` of ${whole(most)}` : ""}`, run.line.stopped_by ? `ended: ${WHY[run.line.stopped_by] || run.line.stopped_by}` : `${whole(last >= 0 ? rows.seconds[last] : 0)} s, ${last >= 0 ? (rows.bytes[last] / 1e6).toFixed(1) : 0} MB sent`)];
    const stated = run.statement;
    if (stated.unit && stated.unit !== "none") {
      const sure = typeof stated.proven === "number";
      found.push(tile(sure ? "proven" : "nothing", "Epsilon proven", epsilon(stated.proven), sure ? `the guarantee, ${run.guarantee}` : "no epsilon holds"),
        tile("claimed", "Epsilon claimed", stated.claimed === null ? "nothing" : epsilon(stated.claimed), `${stated.claim || "the paper's own word"}; no guarantee`),
        tile("audited", "Epsilon audited", run.audit ? (typeof run.audit.measured === "number" ? `≥ ${down(run.audit.measured)}` : String(run.audit.measured ?? "–")) : "not yet",
          run.audit ? `measured by an attack, a bound from below: ${run.audit.verdict}` : "no attack was played: dpfl audit RUN"));
    }
    show(parts.tiles, h("div", { class: "tiles" }, found));
  }

  function curves() {
    const rows = run.rows, percent = run.line.headline === "accuracy" ? 100 : 1;
    const values = rows.round.map((_, number) => { const value = rows.headline[number] ?? rows.accuracy[number]; return value === null ? null : value * percent; });
    const told = values.filter((value) => value !== null), now = { finished: "at the end", stopped: "when it was stopped" }[state] || "now";
    const best = told.reduce((a, b) => (run.line.less_is_better ? Math.min(a, b) : Math.max(a, b)), told[0]);
    put("headline", told.length > 0, { x: rows.round, lines: [{ label: headline, y: values }] }, () => `${told.at(-1).toFixed(percent === 100 ? 2 : 4)}${percent === 100 ? " %" : ""} ${now}, at best ${best.toFixed(percent === 100 ? 2 : 4)}; a curve still ${run.line.less_is_better ? "falling" : "rising"} would use more budget.`);
    const losses = rows.loss.filter((value) => value !== null);
    put("loss", losses.length > 0, { x: rows.round, lines: [{ label: "loss", y: rows.loss, colour: "--c2" }] }, () => `${losses.at(-1).toFixed(3)} ${now}; where it grows while accuracy stands still, the rate is too high.`);
    const spent = rows.epsilon.filter((value) => value !== null), most = run.line.budget.epsilon;
    const lines = [{ label: "used, an upper bound", y: rows.epsilon, colour: "--proven" }];
    if (most) lines.push({ label: "allowed", y: rows.round.map(() => most), colour: "--bad" });
    put("epsilon", spent.length > 0, { x: rows.round, lines }, () => `${epsilon(used())} ${most ? `of ${most} allowed` : "so far"} (${run.guarantee}). Every step is in a ledger before it leaves a client.`);
    put("tau", rows.round.length > 0, { x: rows.round, lines: [{ label: "tau", y: rows.steps, colour: "--c5", steps: true }], range: (_, low, high) => [0, Math.max(high, 1) * 1.1] },
      () => `${whole(rows.steps.at(-1))} in the last round; ${run.statement.unit === "none" ? "a round costs bytes however many steps it has" : "each step costs privacy, each round bytes"}.`);
    const ratio = run.signal.ratio;
    put("signal", ratio.length > 0, { x: run.signal.round, lines: [{ label: "step over noise", y: ratio, colour: "--c6" }, { label: "noise alone", y: ratio.map(() => 1), colour: "--c8" }] },
      () => `The last step is ${ratio.at(-1).toPrecision(3)} times as long as its noise alone. At 1 a single round tells nothing.`);
  }

  function put(which, there, data, sentence) {
    charts[which].element.hidden = !there;
    if (there) { charts[which].say(sentence()); charts[which].set(data); }
  }

  function clients() {
    const { accounts, lost, more } = run.clients, spent = run.statement.per_client || {};
    if (!accounts.length) { show(parts.clients, h("p", { class: "soft" }, run.statement.unit === "none" ? "Nothing is private in this run, so nobody has an account." : "No round has ended yet.")); return; }
    const missed = {}, ended = state === "finished";
    for (const line of lost) { const found = /^round (\d+), client (\d+): (.*)$/s.exec(line); if (found) missed[found[2]] = `${found[3]} (round ${found[1]})`; }
    const rows = accounts.map((one, number) => {
      const figure = spent[one.name] ?? spent["every client"];
      const now = missed[number] ? h("span", { class: "wrong" }, missed[number]) : one.left === 0 && (!ended || run.line.stopped_by === "epsilon") ? h("span", { class: "soft" }, "spent what it may")
        : h("span", { class: "good" }, ended ? "took part" : "takes part");
      return [one.name, now, whole(one.paid), ...(ended ? [] : [one.left > 1e8 ? "no limit" : whole(one.left)]),
        figure === undefined ? "at the end" : meter({ value: figure, most: run.limits[one.name] ?? run.limits["every client"], unit: run.statement.unit, delta: run.statement.delta, what: "proven" })];
    });
    const heads = [{ text: "Account" }, { text: "State" }, { text: "Releases paid", number: true }, ...(ended ? [] : [{ text: "Room for", number: true }]), { text: "Epsilon proven of its limit" }];
    show(parts.clients, table(heads, rows, { label: "Accounts" }), more > 0 && h("p", { class: "soft" }, `and ${whole(more)} more`),
      lost.length > 0 && h("details", {}, h("summary", {}, `${lost.length} replies were refused or lost`), h("pre", { tabindex: "0" }, lost.join("\n"))));
  }

  function rest() {
    const again = run.again && h("div", { class: "card" }, h("div", { class: "row" }, h("h3", {}, "The command that repeats it"), copying(run.again)), h("pre", { tabindex: "0" }, run.again));
    show(parts.rest, nodes(run), run.lines.length > 0 && [h("h2", {}, "Privacy statement"), words(run.lines)], h("h2", {}, "The experiment as run"), again || null,
      h("details", {}, h("summary", {}, "As asked for, and as it came to be"), h("pre", { tabindex: "0" }, run.experiment)));
  }

  function draw() { buttons(); top(); tiles(); curves(); clients(); rest(); }

  function take(event) {
    const known = run.rows.round.at(-1) || 0;
    const fresh = event.rows.round.map((round) => round > known);
    for (const column of Object.keys(event.rows)) event.rows[column] = event.rows[column].filter((_, number) => fresh[number]);
    for (const column of Object.keys(run.rows)) run.rows[column].push(...event.rows[column]);
    if (run.rows.round.length > MOST) for (const column of Object.keys(run.rows)) run.rows[column] = run.rows[column].filter((_, number) => number % 2 || number > MOST - 50);
    run.clients = event.clients;
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
