import { badge, begin, box, budgetOf, get, h, link, meter, post, proven, show, statementTable, table, verdict, whole } from "../dom.js";
import { nodes } from "../nodes.js";

export default async function start(page, query) {
  const name = query.get("name"), owner = query.get("owner");
  const { runs } = await get("/api/runs");
  const ended = runs.filter((run) => run.state !== "unreadable");
  const side = h("div", { class: "card pick" }, ended.slice(0, 500).map((run) => h("a", { href: link("/privacy", { name: run.name }), "aria-current": run.name === name ? "true" : null }, run.name,
    h("div", { class: "soft small" }, { proven: `proven ${run.guarantee.short}`, nothing: run.guarantee.short, running: run.state }[run.guarantee.level], run.certificate ? " · certified" : ""))));
  const body = h("div", {});
  const shown = name ? h("div", { class: "split" }, h("div", {}, h("h3", {}, "Runs"), side), body) : body;
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Privacy"), h("p", { class: "soft" }, "What each account has spent and may still spend. This page reads ledgers and never writes them."))),
    ended.length ? shown : h("div", { class: "card empty" }, h("h2", {}, "No accounts yet"), h("p", {}, "A run opens a ledger for every client before anything leaves that client. Plan a run to begin."), h("p", {}, h("a", { class: "button", href: "/plan" }, "Plan a run"))));
  if (!ended.length) return;
  if (!name) { show(body, overview(ended)); return; }
  show(body, h("p", { class: "soft", role: "status" }, "Reading the ledgers…"));
  const [run, ledgers] = await Promise.all([get(link("/api/run", { name })), get(link("/api/ledgers", { name }))]);
  show(body, statement(run), certificate(name, run, (await begin()).root), accounts(name, run, ledgers, owner), nodes(run));
  if (owner) await account(body, name, owner);
}

function overview(runs) {
  const rows = runs.map((run) => [h("a", { class: "name", href: link("/privacy", { name: run.name }) }, run.name), badge(run.state),
    proven(run.guarantee), run.guarantee.claimed, run.guarantee.unit, run.guarantee.delta, run.certificate ? "signed" : "-", run.audited ? "done" : "-"]);
  return table([{ text: "Run", label: "" }, { text: "State", label: "" }, { text: "Proven" }, { text: "Claimed" }, { text: "Protects" }, { text: "Delta" }, { text: "Certificate" }, { text: "Audit" }], rows, { label: "Runs" });
}

function statement(run) {
  const heading = h("h2", {}, h("a", { href: link("/run", { name: run.line.name }) }, run.line.name));
  if (!run.lines.length) return [heading, verdict(run)];
  const audited = run.tiles.find((one) => one.kind === "audited");
  const rows = audited ? [...run.lines.slice(0, 2), ["audited", `${audited.text}; ${audited.note}`], ...run.lines.slice(2)] : run.lines;
  return [heading, verdict(run), statementTable(rows)];
}

const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

function certificate(name, run, root) {
  if (!run.line.certificate) return [h("h2", {}, "Certificate"), h("p", { class: "soft" }, "This run has no certificate. Make one in a terminal, with your signing key:"), h("pre", {}, `dpfl certify ${quoted(`${root}/${name}`)}`)];
  const outcome = h("div", { role: "status" });
  const button = h("button", { type: "button", class: "first", onclick: async () => {
    button.disabled = true;
    show(outcome, h("p", { class: "soft" }, "Computing every epsilon again. This takes a few seconds."));
    try {
      const found = await post(link("/api/verify", { name }));
      show(outcome, found.good ? box("proven", "The certificate is valid", `It is signed by ${found.signer}. Compare this fingerprint with its owner.`) : box("nothing", "The certificate is not valid", found.findings.join(" ")),
        h("div", { class: "scroll" }, h("table", { class: "checks" }, h("tbody", {}, Object.entries(found.checks).map(([check, text]) => h("tr", {}, h("td", {}, check), h("td", { class: text === "failed" ? "wrong" : null }, text)))))),
        h("h3", {}, "Not checked"), h("ul", { class: "soft" }, found.not_checked.map((line) => h("li", {}, line))));
    } catch (error) { show(outcome, box("nothing", "The certificate cannot be checked", error.message)); }
    button.disabled = false;
  } }, "Verify");
  return [h("h2", {}, "Certificate"), h("div", { class: "row" }, button, h("a", { class: "button", href: link("/certificate", { name }) }, "Printable page")), outcome];
}

function accounts(name, run, ledgers, owner) {
  if (ledgers.elsewhere) return [h("h2", {}, "Ledgers"), h("p", { class: "soft" }, `The ledgers of this run are in ${ledgers.elsewhere}, outside this folder. Read them with: dpfl ledger show`)];
  if (!ledgers.owners.length) return [h("h2", {}, "Ledgers"), h("p", { class: "soft" }, "This run adds no noise, so it has no accounts.")];
  const rows = ledgers.owners.map((one) => {
    const budget = budgetOf(run, one);
    return [h("a", { href: link("/privacy", { name, owner: one }), "aria-current": one === owner ? "true" : null }, one), budget ? meter(budget, { what: "proven" }) : "open", budget ? budget.remaining : "–"];
  });
  return [h("h2", {}, "Ledgers"), table([{ text: "Account" }, { text: "Proven epsilon and limit" }, { text: "Remaining", number: true }], rows, { label: "Ledgers" }), h("div", { id: "account" })];
}

async function account(body, name, owner) {
  const place = body.querySelector("#account");
  if (!place) return;
  let found;
  try { found = await get(link("/api/ledger", { name, owner })); } catch (error) { show(place, box("nothing", "This ledger cannot be read", error.message)); return; }
  const time = (at) => new Date(1000 * at).toISOString().slice(0, 19).replace("T", " ");
  show(place, h("h2", {}, `Account of ${found.owner}`), h("div", { class: "card" }, meter(found.budget, { large: true, what: "spent" }),
    h("p", { class: "soft small" }, found.limit === null ? "This ledger has no limit. Set one with: dpfl ledger limit" : `${found.budget.remaining} remaining. Neighbours: ${found.neighbours}. Accountant: ${found.accountant}. Each row contains the hash of the row before it; all hashes were checked.`)),
    h("br"), table([{ text: "Release" }, { text: "Count", number: true }], found.releases.map((one) => [one.kind, whole(one.count)]), { label: "Releases" }),
    h("details", {}, h("summary", {}, `${whole(found.debits)} debits by ${found.runs.length} ${found.runs.length === 1 ? "run" : "runs"}, latest first`),
      table([{ text: "At (UTC)" }, { text: "Run" }, { text: "Release" }, { text: "Count", number: true }], found.last.map((one) => [time(one.at), one.run.slice(0, 12), one.kind, whole(one.count)]), { label: "Debits" })));
  place.scrollIntoView({ block: "nearest" });
}
