// Copyright (c) 2026 The rebellions.npu authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Everything can be read without this. It adds: the reason beside a cell of the matrix, keys in the matrix, the filter,
// and buttons that copy. It builds text alone, never mark-up.
(() => {
  "use strict";
  const at = (id) => document.getElementById(id);
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  document.documentElement.classList.add("js");

  // What a link leads to may be in what is folded.
  const reveal = (id) => {
    const there = id && at(id);
    if (!there) return;
    for (let one = there.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    if (there.classList.contains("body")) there.previousElementSibling.focus({ preventScroll: true });
    else if (there.classList.contains("check")) {
      there.tabIndex = -1;
      there.focus({ preventScroll: true });
    }
    there.scrollIntoView();
  };
  addEventListener("hashchange", () => reveal(location.hash.slice(1)));
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#h"]');
    if (link && link.hash === location.hash) reveal(link.hash.slice(1));
  });
  reveal(location.hash.slice(1));

  // -- copy
  const say = (text) => { at("told").textContent = text; };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "hidden";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  const offer = (root) => {
    for (const next of all(".next:not(:has(button, a))", root)) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy the next step");
      next.append(button);
    }
  };
  all(".fault, .host[open]").forEach(offer);
  document.addEventListener("toggle", (event) => { if (event.target.matches(".host[open]")) offer(event.target); }, true);
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const done = await copy(button.parentElement.querySelector("span").textContent);
    button.focus();
    button.textContent = done ? "Copied" : "Failed";
    say(done ? "The next step is copied" : "The next step could not be copied");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  const grid = at("grid");
  const rows = grid ? all("tbody > tr", grid) : [];
  const bodies = grid ? all("tbody", grid) : [];
  const heads = grid ? all("thead tr:last-child > th", grid) : [];
  const tip = at("tip");

  // -- the reason beside a cell
  let shown = null;
  let later = 0;
  const hide = () => {
    clearTimeout(later);
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };
  const line = (parts) => {
    const told = document.createElement("p");
    for (const [name, text] of parts) {
      const part = document.createElement(name);
      part.textContent = text;
      told.append(part, " ");
    }
    return told;
  };
  const nameOf = (cell) => heads[cell.cellIndex].textContent;
  const reason = (cell) => {
    if (cell.matches("thead th")) {
      return cell.dataset.told ? [line([["code", nameOf(cell)]]), line([["span", cell.dataset.told]])] : null;
    }
    const host = cell.parentElement.cells[0].querySelector("a").textContent;
    if (cell.matches("th")) return [line([["strong", host]])];
    const link = cell.querySelector("a");
    if (!link) return cell.classList.contains("k") ? [line([["code", nameOf(cell)], ["span", `passed on ${host}`]])] : null;
    const there = at(link.hash.slice(1));
    const told = [line([["code", nameOf(cell)], ["span", `${link.getAttribute("aria-label")} on ${host}`]])];
    told.push(line([["span", there.querySelector(".detail").textContent]]));
    const next = there.querySelector(".next span");
    if (next) told.push(line([["strong", "Next:"], ["span", next.textContent]]));
    return told;
  };
  const show = (cell, owner) => {
    const told = reason(cell);
    hide();
    if (!told) return;
    tip.replaceChildren(...told);
    tip.hidden = false;
    const box = cell.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(12, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 12);
    const below = box.bottom + 8 + own.height < innerHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - 8 - own.height)}px`;
    shown = owner;
    owner.setAttribute("aria-describedby", "tip");
  };
  if (grid) {
    const cellOf = (event) => event.target.closest(".grid tbody > tr > *, .grid thead tr:last-child th");
    grid.addEventListener("pointerover", (event) => {
      if (event.pointerType === "touch") return;
      const cell = cellOf(event);
      clearTimeout(later);
      if (cell) show(cell, cell.querySelector("a") || cell);
      else later = setTimeout(hide, 250);
    });
    const leave = () => { later = setTimeout(hide, 250); };
    grid.addEventListener("pointerleave", leave);
    tip.addEventListener("pointerenter", () => clearTimeout(later));
    tip.addEventListener("pointerleave", leave);
    grid.addEventListener("focusin", (event) => {
      const cell = cellOf(event);
      if (cell && event.target !== grid) show(cell, event.target);
    });
    grid.addEventListener("focusout", hide);
    // What has the focus keeps its reason when it moves; a pointer that stands still is over another cell now.
    const moved = () => {
      if (shown && shown === document.activeElement) show(shown.parentElement, shown);
      else hide();
    };
    grid.addEventListener("scroll", moved, { passive: true });
    addEventListener("scroll", moved, { passive: true });
    addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    // A finger has no hover: the first touch of a cell shows its reason, the second follows the link.
    let touched = false;
    let before = null;
    grid.addEventListener("pointerdown", (event) => {
      touched = event.pointerType === "touch";
      before = shown;
    });
    grid.addEventListener("click", (event) => {
      const link = event.target.closest("td a");
      if (!link || !touched || before === link) return;
      event.preventDefault();
      show(link.parentElement, link);
    });

    // -- keys: one stop of Tab, arrows from cell to cell that has something to say, and to the hosts of these
    let stop = null;
    const settle = (link) => {
      if (stop) stop.tabIndex = -1;
      stop = link;
      if (stop) stop.tabIndex = 0;
    };
    for (const link of all("tbody a", grid)) link.tabIndex = -1;
    const cells = (row) => (row.hidden ? [] : all("td a", row));
    const links = (row) => (cells(row).length ? all("a", row) : []);
    const first = (from, step, of = links) => {
      for (let number = from; rows[number]; number += step) {
        const found = of(rows[number]);
        if (found.length) return found;
      }
      return [];
    };
    const nearest = (found, column) => found.reduce((best, one) =>
      (!best || Math.abs(one.parentElement.cellIndex - column) < Math.abs(best.parentElement.cellIndex - column) ? one : best), null);
    const move = (link, key) => {
      const row = link.closest("tr");
      const number = rows.indexOf(row);
      const own = links(row);
      const place = own.indexOf(link);
      const column = link.parentElement.cellIndex;
      if (key === "ArrowRight") return own[place + 1] || first(number + 1, 1)[0];
      if (key === "ArrowLeft") return own[place - 1] || first(number - 1, -1).at(-1);
      if (key === "ArrowDown") return nearest(first(number + 1, 1, cells), column);
      if (key === "ArrowUp") return nearest(first(number - 1, -1, cells), column);
      if (key === "Home") return first(0, 1, cells)[0];
      return first(rows.length - 1, -1).at(-1);
    };
    grid.addEventListener("keydown", (event) => {
      const link = event.target.closest("tbody a");
      if (!link || !["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const next = move(link, event.key);
      if (next) next.focus();
    });
    grid.addEventListener("focusin", (event) => { if (event.target.matches("tbody a")) settle(event.target); });
    const begin = () => settle(first(0, 1, cells)[0] || null);
    begin();
    grid.addEventListener("filtered", begin);
    if (at("only") && matchMedia("(max-width: 700px)").matches) at("only").checked = true;
  }

  // -- filter
  const form = at("filter");
  if (!form) return;
  form.hidden = false;
  const hosts = all(".host");
  const numberOf = new Map(hosts.map((host, number) => [host.lastElementChild.id, number]));
  const rowOf = new Map(rows.map((row) => [numberOf.get(row.dataset.host), row]));
  const faults = all(".fault").map((fault) => [fault, fault.dataset.hosts.split(" ").map((id) => numberOf.get(id))]);
  const folds = all(".fold");
  const tiles = all(".tile");
  const [state, pool, check] = ["by-state", "by-pool", "by-check"].map(at);
  let texts = null;
  const apply = () => {
    const words = at("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && !texts) texts = hosts.map((host) => host.textContent.toLowerCase());
    const column = check && check.value !== "" ? Number(check.value) + 1 : 0;
    const seen = hosts.map((host, number) =>
      (!state.value || host.dataset.state === state.value)
      && (!pool || pool.value === "" || host.dataset.pool === pool.value)
      && (!column || Boolean(rowOf.get(number)?.cells[column]?.querySelector("a")))
      && words.every((word) => texts[number].includes(word)));
    hosts.forEach((host, number) => { host.hidden = !seen[number]; });
    rowOf.forEach((row, number) => { row.hidden = !seen[number]; });
    for (const body of bodies) {
      const left = [...body.rows].filter((row) => !row.hidden).length;
      body.hidden = !left;
      body.style.containIntrinsicSize = `auto calc(${left} * var(--row))`;
    }
    for (const [fault, own] of faults) fault.hidden = !own.some((number) => seen[number]);
    const left = seen.filter(Boolean).length;
    const some = left < hosts.length;
    for (const fold of folds) {
      const within = all(".host, .fault", fold).some((one) => !one.hidden);
      fold.hidden = !within;
      if (some && within) fold.open = true;
    }
    at("shown").textContent = some ? `${left} of ${hosts.length} hosts` : `${hosts.length} hosts`;
    for (const tile of tiles) tile.setAttribute("aria-pressed", String(tile.dataset.state === state.value));
    if (grid) grid.dispatchEvent(new Event("filtered"));
  };
  let soon = 0;
  form.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(apply, 80);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply, 0));
  for (const tile of tiles) {
    tile.setAttribute("role", "button");
    tile.addEventListener("click", (event) => {
      event.preventDefault();
      state.value = state.value === tile.dataset.state ? "" : tile.dataset.state;
      apply();
    });
    tile.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      tile.click();
    });
  }
  apply();
})();
