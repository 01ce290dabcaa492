import { get, h, link, show, table } from "../dom.js";

const kind = (text) => (text.startsWith("nothing") ? "wrong" : text.includes("less than it claims") ? "wrong" : "good");

export default async function start(page, query) {
  const name = query.get("name");
  if (name) return one(page, await get(link("/api/system", { name })));
  const systems = await get("/api/systems");
  const rows = systems.map((system) => [h("a", { class: "name", href: link("/systems", { name: system.name }) }, system.name), system.protects,
    Object.entries(system.proven).map(([variant, proven]) => h("div", {}, Object.keys(system.proven).length > 1 ? h("span", { class: "soft" }, `${variant}: `) : "", h("span", { class: kind(proven) }, proven))), h("span", { class: "soft" }, system.paper)]);
  show(page, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Systems"), h("p", { class: "soft" }, `${systems.length} systems: what is proven for each, as published and in its sound variant. Each run states its own epsilon.`))),
    table([{ text: "System", label: "" }, { text: "Protects" }, { text: "Proven" }, { text: "Paper" }], rows, { label: "Systems" }));
}

function one(page, system) {
  show(page, h("p", {}, h("a", { href: "/systems" }, "All systems")), h("h1", {}, system.name), h("p", { class: "soft" }, system.paper),
    Object.entries(system.proven).map(([variant, proven]) => h("div", { class: `verdict ${kind(proven) === "good" ? "proven" : "nothing"}` }, h("b", {}, variant), proven)),
    h("pre", { tabindex: "0" }, system.text), h("h2", {}, "Options"),
    table([{ text: "Option" }, { text: "Type" }, { text: "Default" }, { text: "Meaning" }], Object.entries(system.options).map(([option, about]) => [h("code", {}, option), about.type, about.default === null ? "–" : String(about.default), about.meaning]), { label: "Options" }),
    h("h2", {}, "Parts"), table([{ text: "Part" }, { text: "Value" }], Object.entries(system.parts).map(([part, text]) => [part, h("code", {}, text)]), { label: "Parts" }));
}
