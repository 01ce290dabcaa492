// Every page is built here, from text: no string is ever read as HTML.
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function show(place, ...children) {
  if (place.id === "page") place.dataset.shown = "yes";
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

let fading;
export function say(sentence) {
  show(document.getElementById("said"), h("p", {}, sentence));
  clearTimeout(fading);
  fading = setTimeout(() => show(document.getElementById("said")), 7000);
}

let session;
export function begin() {
  session ??= get("/api/session");
  return session;
}

async function answered(response) {
  const body = await response.text();
  let found;
  try { found = JSON.parse(body); } catch { found = { error: body }; }
  if (!response.ok) throw Object.assign(new Error(found.error || "The server did not answer. Is dpfl ui still running?"), { answered: true });
  return found;
}

export async function get(address, signal) {
  let response;
  try {
    response = await fetch(address, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is dpfl ui still running?");
  }
  return answered(response);
}

export async function post(address, body) {
  const { write } = await begin();
  const headers = { "x-dpfl-write": write, "content-type": "application/json" };
  return answered(await fetch(address, { method: "POST", headers, body: body === undefined ? null : JSON.stringify(body) }));
}

export const link = (page, parameters) => `${page}?${new URLSearchParams(parameters)}`;

export const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : String(value ?? "–"));
export const whole = (value) => Math.round(value).toLocaleString("en");
export const measured = (name, value) =>
  value === null || value === undefined ? "–" : name === "accuracy" ? `${(100 * value).toFixed(2)} %` : value.toFixed(4);

export function ago(time) {
  if (!time) return "–";
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.floor(seconds / length);
    if (count >= 1) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }
  return "just now";
}

export function when(time) {
  const read = Date.parse(time);
  return Number.isNaN(read) ? "–" : `${new Date(read).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

export const badge = (state, text) => h("span", { class: `badge ${state}` }, text || state);

// A box that nobody may overlook.
export function box(level, title, text) {
  return h("div", { class: `verdict ${level}` }, h("b", {}, title), text);
}

// What holds for a run, in the words of the server.
export const verdict = (run) => run.verdict && box(run.verdict.level, run.verdict.title, `${run.verdict.sentence} ${run.verdict.details}`);

export const tile = ({ kind, title, text, note }) => h("div", { class: `tile ${kind}` }, h("span", { class: "kind" }, title), h("strong", {}, text), h("span", {}, note));

// Epsilon against its limit: a bar, and the same with unit and delta, in the words of the server.
export function meter(budget, { large, what } = {}) {
  const { figure, limit, percent, level, scope, note } = budget;
  if (!budget.is_figure)
    return h("div", { class: large ? "meter large" : "meter" }, h(large ? "strong" : "span", { class: level === "nothing" ? "wrong" : "soft" }, figure));
  const fill = h("div", { class: `fill${budget.is_over ? " over" : ""}` });
  fill.style.width = `${percent}%`;
  const text = `${figure}${limit ? ` of ${limit}` : ""}`;
  const name = `epsilon ${what || "used"}: ${text}, ${scope}`;
  const bar = limit && h("div", { class: "track", role: "meter", "aria-label": name, "aria-valuemin": "0",
    "aria-valuemax": "100", "aria-valuenow": String(percent), "aria-valuetext": text }, fill);
  if (!large) return h("div", { class: "meter small", title: name }, h("span", {}, text), bar);
  return h("div", { class: "meter large" }, h("div", {}, h("strong", {}, figure), h("span", { class: "of" },
    limit ? ` of ${limit} allowed` : " used, without a limit")), bar,
    h("p", { class: "soft small" }, `epsilon ${what || "used, an upper bound"} (${scope})`, note && `; ${note}`));
}

// The budget of one account; the statement may name all clients together.
export const budgetOf = (run, owner) => run.budgets[owner] ?? run.budgets["every client"];

// The proven epsilon of a run in a list.
export const proven = ({ level, short: text }) => h("span", { class: { proven: "good", nothing: "wrong", running: "soft" }[level] }, text);

export function table(heads, rows, properties = {}) {
  const cell = (head, value) => h("td", { class: head.number ? "number" : null, "data-label": head.label ?? head.text }, value);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": properties.label || "table" },
    h("table", { class: "stack" },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head.number ? "number" : null }, head.text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, place) => cell(heads[place], value)))))));
}

export function statementTable(rows) {
  return h("div", { class: "scroll" }, h("table", { class: "words stack" }, h("tbody", {},
    rows.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text))))));
}

export function copying(text) {
  return h("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); say("Copied."); } catch { say("The browser does not allow copying here. Select the text instead."); }
  } }, "Copy");
}
