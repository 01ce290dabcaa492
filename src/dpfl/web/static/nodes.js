import { h, meter, table, when, whole } from "./dom.js";

// The nodes of a run: who takes part, and what each of them signed.
export function nodes(run) {
  if (!run.nodes.length) return null;
  const heads = [{ text: "Node" }, { text: "State" }, { text: "Samples declared", number: true }, { text: "Proven epsilon and limit" }, { text: "Signed at" }];
  const rows = run.nodes.map((node) => [node.name, node.away ? h("span", { class: "wrong" }, `takes no part: ${node.away}`) : h("span", { class: "good" }, "joined"),
    node.size === null ? "–" : whole(node.size), node.away ? "–" : node.proven === null ? `no statement${run.line.state === "finished" ? "" : " yet"}`
      : meter(node.budget, { what: "proven" }), when(node.at)]);
  return [h("h2", {}, "Nodes"), table(heads, rows, { label: "Nodes" }), h("p", { class: "soft small" },
    "Each node signs a statement from its own ledger at the end. Its owner sets the limit, for all runs together. The accounts above are the server's own count of the releases that it requested. To check the signatures against the certificate, use Verify on the privacy page, or: dpfl verify certificate.json nodes/*.json")];
}
