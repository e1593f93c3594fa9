"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const overview = by("overview"), job = by("job"), body = by("jobs"), details = by("details"), heading = by("job-name");
  const rows = [...body.rows], buttons = [...document.querySelectorAll("[data-only]")];
  const title = document.title;
  const tests = {
    waiting: (row) => ["waiting", "abandoned"].includes(row.dataset.state),
    unreadable: (row) => row.dataset.state === "unreadable",
    failed: (row) => Number(row.dataset.failed) > 0,
    gaps: (row) => Number(row.dataset.gaps) > 0,
  };
  let last = null;

  function filter() {
    const words = by("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = buttons.filter((button) => button.getAttribute("aria-pressed") === "true");
    let shown = 0;
    for (const row of rows) {
      const name = row.dataset.name.toLowerCase();
      const fits = words.every((word) => name.includes(word)) && only.every((one) => tests[one.dataset.only](row));
      row.hidden = !fits;
      shown += fits;
    }
    const total = rows.length.toLocaleString("en");
    by("shown").textContent = shown === rows.length ? `${total} jobs` : `${shown.toLocaleString("en")} of ${total} jobs`;
    by("none").hidden = shown > 0;
  }

  function sort(key, rising) {
    const value = (row) => (key === "name" ? row.dataset.name : row.dataset[key]);
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (key === "name") return a.localeCompare(b);
      if (a === "" || b === "") return (a === "") - (b === "");
      return rising ? a - b : b - a;
    };
    const sign = key === "name" && !rising ? -1 : 1;
    rows.sort((one, other) => sign * compare(one, other) || one.dataset.rank - other.dataset.rank);
    body.append(...rows);
    for (const button of document.querySelectorAll("[data-sort]")) {
      const head = button.closest("th");
      if (button.dataset.sort === key) head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    by("order").value = key;
  }

  async function load(row) {
    if ("live" in document.body.dataset) {
      const answer = await fetch(`job?name=${encodeURIComponent(row.dataset.name)}`);
      if (!answer.ok) throw new Error(await answer.text());
      return answer.text();
    }
    const packed = by(`details-${row.dataset.rank}`).textContent;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  function asked() {
    if (!location.hash.startsWith("#job=")) return null;
    try {
      return decodeURIComponent(location.hash.slice(5));
    } catch {
      return null;
    }
  }

  async function route() {
    if (location.hash === "#main") return;
    const name = asked();
    const row = name === null ? null : rows.find((one) => one.dataset.name === name);
    overview.hidden = Boolean(row);
    job.hidden = !row;
    if (!row) {
      document.title = title;
      details.replaceChildren();
      if (last) last.querySelector("a").focus();
      last = null;
      return;
    }
    last = row;
    document.title = `${name} · ${title}`;
    heading.textContent = name;
    details.textContent = "Loading …";
    scrollTo(0, 0);
    heading.focus({ preventScroll: true });
    try {
      const found = await load(row);
      if (last === row) details.innerHTML = found;
    } catch (error) {
      if (last === row) details.textContent = `The details cannot be shown: ${error.message}`;
    }
  }

  by("find").addEventListener("input", filter);
  by("order").addEventListener("change", (event) => sort(event.target.value, ["rank", "name"].includes(event.target.value)));
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort, now = button.closest("th").getAttribute("aria-sort");
      const first = ["rank", "name"].includes(key);
      sort(key, now ? now === "descending" : first);
    });
  }
  addEventListener("hashchange", route);
  filter();
  route();
})();
