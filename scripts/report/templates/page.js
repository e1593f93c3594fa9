"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const overview = by("overview"), job = by("job"), details = by("details"), heading = by("job-name");
  const title = document.title;
  const rising = ["rank", "name"];
  const tests = {
    late: (row) => ["late", "missing"].includes(row.dataset.word),
    waiting: (row) => ["open plan", "lease over"].includes(row.dataset.state),
    unreadable: (row) => row.dataset.state === "problem",
    failed: (row) => Number(row.dataset.failed) > 0,
    gaps: (row) => Number(row.dataset.gaps) > 0,
  };
  const ranges = [...document.querySelectorAll("#range input")].map((input) => input.value);
  // The page as it is filtered, sorted and bounded in time. It stands in the address, so that it can be sent and comes back.
  const view = { find: "", only: [], sort: "rank", up: true, range: "all" };
  let last = null;

  const rows = () => [...by("jobs").rows];

  function show() {
    const words = view.find.toLowerCase().split(/\s+/).filter(Boolean);
    const all = rows();
    let shown = 0;
    for (const row of all) {
      const name = row.dataset.name.toLowerCase();
      const fits = words.every((word) => name.includes(word)) && view.only.every((one) => tests[one](row));
      row.hidden = !fits;
      row.querySelector("a").setAttribute("href", address_of(row.dataset.name));
      shown += fits;
    }
    const total = all.length.toLocaleString("en"), noun = all.length === 1 ? "job" : "jobs";
    by("shown").textContent = shown === all.length ? `${total} ${noun}` : `${shown.toLocaleString("en")} of ${total} ${noun}`;
    by("none").hidden = shown > 0;
    if (by("find").value !== view.find) by("find").value = view.find;
    for (const button of document.querySelectorAll("[data-only]")) {
      button.setAttribute("aria-pressed", String(view.only.includes(button.dataset.only)));
    }
    order(all);
  }

  function order(all) {
    const key = view.sort, up = view.up;
    const value = (row) => (key === "name" ? row.dataset.name : row.dataset[key]);
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (key === "name") return up ? a.localeCompare(b) : b.localeCompare(a);
      if (a === "" || b === "") return (a === "") - (b === "");
      return up ? a - b : b - a;
    };
    all.sort((one, other) => compare(one, other) || one.dataset.rank - other.dataset.rank);
    // Moved only where the order changes: a row that is moved loses the focus.
    const now = rows();
    if (all.some((row, at) => row !== now[at])) by("jobs").append(...all);
    for (const button of document.querySelectorAll("[data-sort]")) {
      const head = button.closest("th");
      if (button.dataset.sort === key && !(key === "rank" && up)) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    by("order").value = key;
  }

  // --- the time range ---

  function in_range() {
    document.body.dataset.range = view.range;
    by(`range-${view.range}`).checked = true;
    const since = details.querySelector("#since");
    if (!since) return;
    // Nothing is older than the beginning of all. Texts of times are in the order of times.
    const from = since.getAttribute(`data-${view.range}`) || "";
    for (const table of details.querySelectorAll("table[data-time]")) {
      const lines = [...table.tBodies[0].rows];
      for (const line of lines) line.hidden = line.cells[table.dataset.time].textContent < from;
      const older = lines.filter((line) => line.hidden).length;
      const region = table.parentNode, note = region.nextElementSibling;
      region.hidden = older === lines.length;
      note.hidden = older === 0;
      note.textContent = `Shown: ${lines.length - older} of ${lines.length}, since ${from}.`;
    }
  }

  function put(found) {
    details.innerHTML = found;
    in_range();
  }

  // --- the address ---

  function address_of(name) {
    return `#job=${encodeURIComponent(name)}${view.range === "all" ? "" : `&range=${view.range}`}`;
  }

  function address_of_list() {
    const said = new URLSearchParams();
    if (view.find) said.set("find", view.find);
    if (view.only.length) said.set("only", view.only.join(","));
    if (view.sort !== "rank" || !view.up) said.set("sort", (view.up ? "" : "-") + view.sort);
    if (view.range !== "all") said.set("range", view.range);
    const text = said.toString();
    return text ? `#${text}` : "";
  }

  function remember() {
    const list = address_of_list(), here = last === null ? list : address_of(last);
    // Replaced, not pushed: each letter that is typed would else be a step back. Of a file only the fragment may change.
    history.replaceState(null, "", here || location.pathname + location.search);
    by("back").setAttribute("href", list || "#");
  }

  function recall(said) {
    const sort = said.get("sort") || "rank", key = sort.replace(/^-/, "");
    view.find = said.get("find") || "";
    view.only = (said.get("only") || "").split(",").filter((one) => one in tests);
    view.sort = by("order").querySelector(`option[value="${CSS.escape(key)}"]`) ? key : "rank";
    view.up = view.sort === key ? !sort.startsWith("-") : true;
  }

  async function load(row) {
    const packed = by(`details-${row.dataset.rank}`).textContent;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  const row_of = (name) => rows().find((one) => one.dataset.name === name);

  async function route() {
    if (location.hash === "#main") return;
    const said = new URLSearchParams(location.hash.slice(1)), name = said.get("job");
    const row = name === null ? null : row_of(name);
    const range = said.get("range");
    view.range = ranges.includes(range) ? range : "all";
    in_range();
    overview.hidden = Boolean(row);
    job.hidden = !row;
    if (!row) {
      document.title = title;
      details.replaceChildren();
      if (name === null) recall(said);
      show();
      const left = last && row_of(last);
      if (left) left.querySelector("a").focus();
      last = null;
      return;
    }
    last = name;
    by("back").setAttribute("href", address_of_list() || "#");
    document.title = `${name} · ${title}`;
    heading.textContent = name;
    details.textContent = "Loading …";
    scrollTo(0, 0);
    heading.focus({ preventScroll: true });
    try {
      const found = await load(row);
      if (last === name) put(found);
    } catch (error) {
      if (last === name) details.textContent = `The details cannot be shown: ${error.message}.`;
    }
  }

  // --- commands and ids ---

  async function copy(button) {
    const label = button.firstChild;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      label.textContent = "Copied";
    } catch {
      // Without the permission the command is selected, so that one key copies it.
      getSelection().selectAllChildren(button.parentNode.querySelector("code"));
      label.textContent = "Selected";
    }
    setTimeout(() => { label.textContent = "Copy"; }, 2000);
  }

  // --- values of charts ---

  function read(plot, at) {
    const figures = figures_of(plot), lines = [...figures.tBodies[0].rows].reverse();
    const place = Math.min(Math.max(at, 0), lines.length - 1);
    const cells = lines[place].cells, heads = figures.tHead.rows[0].cells;
    const said = plot.dataset.columns.split(" ").map((column) => {
      const text = cells[column].textContent;
      return `${heads[column].textContent}: ${text || "nothing known"}`;
    });
    plot.dataset.at = place;
    plot.querySelector(".read").textContent = `${cells[0].textContent} · ${said.join(" · ")}`;
    const mark = plot.querySelector(".mark");
    mark.style.left = `${((place + 0.5) / lines.length) * 100}%`;
    mark.hidden = false;
  }

  function leave(plot) {
    plot.querySelector(".read").textContent = "";
    plot.querySelector(".mark").hidden = true;
  }

  const figures_of = (plot) => plot.closest("[data-in]").querySelector(".values");
  const count = (plot) => figures_of(plot).tBodies[0].rows.length;

  details.addEventListener("pointermove", (event) => {
    const plot = event.target.closest(".plot");
    if (!plot) return;
    const box = plot.querySelector(".chart").getBoundingClientRect();
    read(plot, Math.floor(((event.clientX - box.left) / box.width) * count(plot)));
  });
  details.addEventListener("pointerout", (event) => {
    const plot = event.target.closest(".plot");
    if (plot && !plot.contains(event.relatedTarget) && document.activeElement !== plot) leave(plot);
  });
  details.addEventListener("focusin", (event) => {
    if (event.target.matches(".plot")) read(event.target, count(event.target) - 1);
  });
  details.addEventListener("focusout", (event) => {
    if (event.target.matches(".plot")) leave(event.target);
  });
  details.addEventListener("keydown", (event) => {
    if (!event.target.matches(".plot")) return;
    const at = Number(event.target.dataset.at);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: count(event.target) - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(event.target, to);
  });

  by("find").addEventListener("input", () => {
    view.find = by("find").value;
    show();
    remember();
  });
  by("range").addEventListener("change", (event) => {
    view.range = event.target.value;
    in_range();
    show();
    remember();
  });
  // The figures are open for all time ranges or for none. The event does not bubble.
  details.addEventListener("toggle", (event) => {
    for (const other of details.querySelectorAll("[data-in] details")) other.open = event.target.open;
  }, true);
  by("order").addEventListener("change", (event) => {
    Object.assign(view, { sort: event.target.value, up: rising.includes(event.target.value) });
    show();
    remember();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches(".copy")) copy(button);
    if (button.matches(".whole")) [button.textContent, button.title] = [button.title, button.textContent];
    if (button.dataset.only) {
      const one = button.dataset.only;
      view.only = view.only.includes(one) ? view.only.filter((other) => other !== one) : [...view.only, one];
      show();
      remember();
    }
    if (button.dataset.sort) {
      const key = button.dataset.sort;
      Object.assign(view, { sort: key, up: view.sort === key ? !view.up : rising.includes(key) });
      show();
      remember();
    }
  });
  addEventListener("hashchange", route);
  by("range").hidden = false;
  show();
  route();
})();
