import { begin, h, say, show } from "./dom.js";

const PAGES = [["/", "Runs", "runs"], ["/compare", "Compare", "compare"], ["/plan", "Planner", "plan"],
  ["/systems", "Systems", "systems"], ["/privacy", "Privacy", "privacy"]];
const page = document.getElementById("page");
const here = location.pathname;

show(document.getElementById("pages"), PAGES.map(([path, name]) =>
  h("a", { href: path, "aria-current": path === here || (path === "/" && here === "/run") ? "page" : null }, name)));

const found = here === "/run" ? ["/run", "Run", "run"] : PAGES.find(([path]) => path === here);

async function open() {
  if (!found) {
    show(page, h("div", { class: "card empty" }, h("h1", {}, "This page does not exist"), h("p", {}, h("a", { href: "/" }, "All runs"))));
    return;
  }
  document.title = `${found[1]} · dpfl`;
  const waiting = setTimeout(() => { if (!page.dataset.shown) show(page, h("p", { class: "soft", role: "status" }, "Loading…")); }, 250);
  try {
    await begin();
    const { default: start } = await import(`./pages/${found[2]}.js`);
    await start(page, new URLSearchParams(location.search));
  } catch (error) {
    failed(error);
  } finally {
    clearTimeout(waiting);
    page.dataset.ready = "yes";
  }
}

function failed(error) {
  const again = h("button", { type: "button", onclick: () => location.reload() }, "Try again");
  show(page, h("div", { class: "card empty" }, h("h1", {}, "This page cannot be shown"), h("p", {}, error.message), h("p", {}, again)));
}

addEventListener("unhandledrejection", (event) => { event.preventDefault(); if (event.reason?.name !== "AbortError") say(event.reason?.message || String(event.reason)); });
document.documentElement.dataset.ready = "yes";
open();
