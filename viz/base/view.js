/* Tooltips, selection and jumps of the lab's HTML views. Listens on the document, so views may be
   replaced at any time. A chosen token is announced as a bubbling "kv-select" event on the element:
   detail = {agent, method, token, span}. */
(() => {
  "use strict";
  if (window.kvView) return;
  window.kvView = true;
  let tip = null;
  const esc = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const cache = new WeakMap();

  function dataOf(element) {
    const group = element.closest(".kv-band-group");
    const holder = group && group.querySelector("script.kv-data");
    if (!holder) return null;
    if (!cache.has(holder)) cache.set(holder, JSON.parse(holder.textContent));
    return { group, data: cache.get(holder) };
  }

  function methodOf(element, group) {
    const lane = element.closest(".kv-lane");
    if (lane) return lane.dataset.method;
    const radio = group.querySelector(".kv-reading input:checked");
    return radio ? radio.dataset.method : null;
  }

  function cellOf(target) {
    return target instanceof Element ? target.closest("i[data-token]") : null;
  }

  function quote(text) {
    const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥");
    return "‘" + (shown.trim() ? shown : shown.replace(/ /g, "␣")) + "’";
  }

  function describe(cell) {
    const found = dataOf(cell);
    if (!found) return "";
    const { group, data } = found;
    const token = Number(cell.dataset.token);
    const method = methodOf(cell, group);
    const lane = data.methods[method];
    const span = data.spans.find((s) => s[0] <= token && token < s[1]);
    const action = lane ? ["computed", "reused", "corrected", "recomputed"][Number(lane.codes[token])] : "";
    const run = lane && lane.runs.find((r) => r.r[0] <= token && token < r.r[1]);
    const rows = [];
    if (span) rows.push(["part of", span[2]]);
    if (lane) rows.push([lane.name, action]);
    const counts = lane && lane.mixed && lane.mixed[token];
    if (counts) {
      const names = ["computed", "reused", "corrected", "recomputed"];
      rows.push(["by layer", counts.map((n, i) => (n ? n + " " + names[i] : "")).filter(Boolean).join(", ")]);
    }
    if (run) {
      if (run.source) rows.push(["source", run.source + (run.approximate ? " (approximate)" : "")]);
      if (run.moved) rows.push(["moved by", run.moved + " positions"]);
      if (run.anchors) rows.push(["anchors", run.anchors.map((a) => a[0] + " (" + a[1] + ")").join(", ")]);
      if (run.reason) rows.push(["why", run.reason]);
    }
    if (lane && lane.error) rows.push(["error", lane.error[token] + " relative, worst at layer " + lane.layer[token]]);
    return (
      '<p class="kv-tip-head">' + esc(quote(data.texts[token])) + "<span>token " + token + "</span></p><dl>" +
      rows.map((r) => "<dt>" + esc(r[0]) + "</dt><dd>" + esc(r[1]) + "</dd>").join("") + "</dl>"
    );
  }

  function show(html, box) {
    if (!html) return hide();
    if (!tip || !tip.isConnected) {
      tip = document.createElement("div");
      tip.className = tip.id = "kv-tip";
      tip.setAttribute("role", "tooltip");
      document.body.appendChild(tip);
    }
    tip.innerHTML = html;
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), innerWidth - width - 8);
    const above = box.top - height - 8;
    tip.style.left = left + "px";
    tip.style.top = (above > 8 ? above : box.bottom + 10) + "px";
  }

  function hide() {
    if (tip) tip.hidden = true;
  }

  function reveal(target) {
    const cell = cellOf(target);
    if (cell) return show(describe(cell), cell.getBoundingClientRect());
    const hinted = target instanceof Element ? target.closest("[data-tip]") : null;
    if (hinted) return show("<p>" + esc(hinted.dataset.tip) + "</p>", hinted.getBoundingClientRect());
    hide();
  }

  function mark(group, start, end) {
    const total = Number(group.dataset.tokens);
    const box = group.querySelector(".kv-selected");
    if (box) {
      box.hidden = false;
      box.dataset.start = start;
      box.dataset.end = end;
      box.style.left = (100 * start) / total + "%";
      box.style.width = (100 * (end - start)) / total + "%";
    }
    group.querySelectorAll(".kv-text .kv-on").forEach((e) => e.classList.remove("kv-on"));
    group.querySelectorAll(".kv-text i[data-token]").forEach((e) => {
      const t = Number(e.dataset.token);
      if (t >= start && t < end) e.classList.add("kv-on");
    });
    group.dataset.selected = start;
    const scroll = group.querySelector(".kv-band-scroll");
    const x = (scroll.scrollWidth * start) / total;
    if (x < scroll.scrollLeft || x > scroll.scrollLeft + scroll.clientWidth - 12)
      scroll.scrollLeft = x - scroll.clientWidth / 2;
  }

  function announce(element, group, method, start, end, span) {
    mark(group, start, end);
    const agent = Number(group.dataset.agent);
    element.dispatchEvent(
      new CustomEvent("kv-select", { bubbles: true, detail: { agent, method, token: start, end, span } })
    );
  }

  document.addEventListener("mouseover", (event) => reveal(event.target));
  document.addEventListener("focusin", (event) => {
    if (!(event.target instanceof Element) || !event.target.matches("[data-tip]")) return;
    reveal(event.target);
    event.target.setAttribute("aria-describedby", "kv-tip");
  });
  document.addEventListener("focusout", (event) => {
    if (event.target instanceof Element && event.target.matches("[data-tip]")) event.target.removeAttribute("aria-describedby");
    hide();
  });
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const scroll = event.target instanceof Element ? event.target.closest(".kv-band-scroll") : null;
    if (!scroll || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const group = scroll.closest(".kv-band-group");
    const total = Number(group.dataset.tokens);
    const now = Number(group.dataset.selected ?? -1);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: total - 1 }[event.key];
    const token = Math.min(Math.max(0, next), total - 1);
    const method = methodOf(scroll, group);
    announce(scroll, group, method, token, token + 1, null);
    const lane = [...group.querySelectorAll(".kv-lane")].find((l) => l.dataset.method === method);
    const cell = lane && lane.querySelector('i[data-token="' + token + '"]');
    if (cell) setTimeout(() => reveal(cell), 60); // after the scroll that hides tooltips
  });
  document.addEventListener("click", (event) => {
    const target = event.target;
    if (!(target instanceof Element)) return;
    const cell = cellOf(target);
    const group = target.closest(".kv-band-group");
    if (!group) return;
    if (cell) {
      const token = Number(cell.dataset.token);
      const found = dataOf(cell);
      const span = found && found.data.spans.find((s) => s[0] <= token && token < s[1]);
      return announce(cell, group, methodOf(cell, group), token, token + 1, span ? span[3] : null);
    }
    const bracket = target.closest(".kv-bracket");
    if (bracket) {
      const start = Number(bracket.dataset.start), end = Number(bracket.dataset.end);
      return announce(bracket, group, methodOf(bracket, group), start, end, bracket.dataset.span);
    }
    const overview = target.closest(".kv-overview");
    if (overview) {
      const box = overview.getBoundingClientRect();
      const scroll = group.querySelector(".kv-band-scroll");
      scroll.scrollLeft = ((event.clientX - box.left) / box.width) * scroll.scrollWidth - scroll.clientWidth / 2;
    }
  });
})();
