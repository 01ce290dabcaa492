import { h, meter, table, when, whole } from "./dom.js";

// Of a run over nodes: who takes part, and what each of them signed.
export function nodes(run) {
  if (!run.nodes.length) return null;
  const heads = [{ text: "Node" }, { text: "State" }, { text: "Samples declared", number: true }, { text: "Epsilon proven of its own limit" }, { text: "Signed at" }];
  const rows = run.nodes.map((node) => [node.name, node.away ? h("span", { class: "wrong" }, `takes no part: ${node.away}`) : h("span", { class: "good" }, "joined"),
    node.size === null ? "–" : whole(node.size), node.away ? "–" : node.proven === null ? `no statement${run.line.state === "finished" ? "" : " yet"}`
      : meter({ value: node.proven, most: node.limit, unit: node.unit, delta: node.delta, what: "proven" }), when(node.at)]);
  return [h("h2", {}, "Nodes"), table(heads, rows, { label: "Nodes" }), h("p", { class: "soft small" },
    "What each node says and signs at the end, from its own ledger: its limit is its owner's, for all runs together. The accounts of this run are the server's own count of what it ordered. Verify on the privacy page checks their signatures against the certificate, as does: dpfl verify certificate.json nodes/*.json")];
}
