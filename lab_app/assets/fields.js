/* Draws what lab_app/ui/fields.py declares. The component's value holds the fields' values by name; what the server
   says about them (hidden, messages, notes, labels) comes in another property, so that it never touches typed text. */
(() => {
  "use strict";
  if (window.KVFields) return;

  const ICONS = { up: ["↑", "Move up"], down: ["↓", "Move down"], remove: ["×", "Remove"] };

  function make(tag, css, more = {}, ...inside) {
    const found = document.createElement(tag);
    if (css) found.className = css;
    for (const [name, value] of Object.entries(more)) {
      if (value !== undefined && value !== "") found.setAttribute(name, value);
    }
    found.append(...inside);
    return found;
  }

  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  // Only what differs is written, so that the caret stays.
  const put = (box, value) => { if (box.value !== value) box.value = value; };

  function mount(element, props, trigger, watch) {
    const host = element.querySelector(".kv-fields");
    const block = element.closest('[id^="kv-"]') || element, ids = block.id;
    block.kvValues = () => values; // for typed.js
    const spec = window.KVForms[ids];
    const nodes = {}; // by name: {root, set, show, look}
    const profiles = []; // what follows from the values in the browser
    let values = { ...props.value }, shown = {}, newest = 0;

    function write(changes, event) {
      values = { ...values, ...changes };
      props.value = { ...values };
      profiles.forEach((mark) => mark());
      trigger(event || "input");
    }

    /* Draws nodes whose values are those of a scope: the component's own, or those of a copied panel. */
    function drawing(scope) {
    const { nodes, profiles, suffix } = scope;
    const edit = (name, value, event) => scope.write({ [name]: value }, event);

    /* ---- the kinds of nodes; each gives its element, and what sets and shows it -------------------- */

    const info = (node, id) => (node.help ? [make("span", "info-text", { id: id + "-help" }, node.help)] : []);
    const label = (node, id) => make("label", "kv-label", { for: id + "-box" }, node.label || "");
    const css = (node, kind) => `kv-field kv-kind-${kind} ${node.css || ""}`;
    const about = (node, id) => ({ "aria-describedby": node.help ? id + "-help" : undefined });

    function typed(node, id, box, kind, read, draw) {
      box.addEventListener("input", () => edit(node.name, read()));
      const named = label(node, id);
      const root = make("div", css(node, kind), { id }, named, box, ...info(node, id));
      const show = (how) => {
        named.textContent = how.label;
        box.placeholder = how.placeholder || "";
        root.className = css(how, kind);
      };
      return { root, set: draw, show, box };
    }

    const kinds = {
      text(node, id) {
        const box = make("textarea", "", { id: id + "-box", rows: node.lines || 1, ...about(node, id) });
        if (node.max) box.style.maxHeight = node.max * 1.5 + 1.2 + "em";
        return typed(node, id, box, "text", () => box.value, (value) => put(box, value || ""));
      },
      number(node, id) {
        const box = make("input", "", { id: id + "-box", type: "number", step: node.step, ...about(node, id) });
        const read = () => (Number.isFinite(box.valueAsNumber) ? box.valueAsNumber : null);
        const found = typed(node, id, box, "number", read, (value) => {
          if (read() !== value) box.value = value ?? "";
          if (slider) slider.value = value ?? node.slider[0];
        });
        const slider = node.slider && make("input", "kv-slider", { type: "range", min: String(node.slider[0]), max: String(node.slider[1]), step: node.step, "aria-label": node.label });
        if (!slider) return found;
        slider.addEventListener("input", () => { box.value = slider.value; edit(node.name, read()); });
        box.addEventListener("input", () => { slider.value = box.value; });
        box.after(slider);
        return found;
      },
      bool(node, id) {
        const box = make("input", "", { id: id + "-box", type: "checkbox", role: "switch", ...about(node, id) });
        box.addEventListener("change", () => edit(node.name, box.checked));
        const root = make("div", css(node, "bool"), { id }, label(node, id), box, ...info(node, id));
        return { root, set: (value) => { box.checked = Boolean(value); } };
      },
      select(node, id) {
        const box = make("select", "", { id: id + "-box", ...about(node, id) });
        box.addEventListener("change", () => edit(node.name, box.value, node.event));
        const root = make("div", css(node, "select"), { id }, label(node, id), box, ...info(node, id));
        const show = (how) => {
          box.replaceChildren(...(how.choices || []).map(([said, value]) => new Option(said, value)));
          box.value = scope.values()[node.name];
        };
        show(node);
        return { root, set: (value) => { box.value = value; }, show };
      },
      choice(node, id) {
        const found = radios(node, id, node.choices, (value) => edit(node.name, value));
        return { root: found.root, set: found.mark };
      },
      profiles(node, id) {
        const wanted = node.settings.map(([, own]) => ({ ...node.usual, ...own }));
        const found = radios(node, id, node.settings.map(([said], i) => [said, String(i)]), (i) => {
          scope.write(wanted[Number(i)]);
          scope.read();
        });
        const holds = (all) => Object.entries(all).every(([name, value]) => scope.values()[name] === value);
        profiles.push(() => found.mark(String(wanted.findIndex(holds))));
        return { root: found.root };
      },
      checks(node, id) {
        const group = make("div", "kv-checks", { role: "group", "aria-label": node.label });
        const root = make("div", css(node, "checks"), { id }, group);
        const boxes = () => [...group.querySelectorAll("input")];
        const mark = () => boxes().forEach((box) => box.parentElement.classList.toggle("selected", box.checked));
        const set = (names) => {
          boxes().forEach((box) => { box.checked = (names || []).includes(box.value); });
          mark();
        };
        const show = (how) => {
          group.replaceChildren(...(how.choices || []).map(([said, value]) => {
            const box = make("input", "", { type: "checkbox", value });
            box.addEventListener("change", () => { mark(); edit(node.name, boxes().filter((one) => one.checked).map((one) => one.value)); });
            return make("label", "", {}, box, make("span", "", {}, said));
          }));
          set(scope.values()[node.name]);
        };
        show(node);
        return { root, set, show };
      },
      button(node, id) {
        const root = make("button", `kv-push ${node.primary ? "kv-push-primary" : ""} ${node.css || ""}`, { id, type: "button" }, node.label);
        root.addEventListener("click", () => trigger(node.event));
        return { root, show: (how) => { root.disabled = how.interactive === false; root.textContent = how.label; } };
      },
      cards(node, id) { return cards(node, id); },
      copies(node, id) { return copies(node, id); },
      note(node, id) {
        const root = make("div", "kv-note " + (node.css || ""), { id });
        const show = (how) => { if (root.kvHtml !== how.html) root.innerHTML = root.kvHtml = how.html || ""; };
        show(node);
        return { root, show };
      },
      message(node, id) {
        const root = make("div", "kv-errors", { id });
        return { root, show: (how) => message(root, how.html || "", nodes[node.name.slice("error_".length)]) };
      },
      row(node, id) { return { root: make("div", "kv-fields-row " + (node.css || ""), { id }, ...inside(node)) }; },
      panel(node, id) { return { root: make("div", "kv-fields-panel " + (node.css || ""), { id }, ...inside(node)) }; },
      fold(node, id) {
        const head = make("summary", node.head || "");
        const root = make("details", "kv-fields-fold " + (node.css || ""), { id }, head, make("div", "kv-fold-body", {}, ...inside(node)));
        const show = (how) => { if (head.kvHtml !== how.label) head.innerHTML = head.kvHtml = how.label; };
        show(node);
        return { root, show };
      },
    };

    function radios(node, id, choices, chosen) {
      const group = make("div", "kv-choices", { role: "radiogroup", "aria-labelledby": id + "-label", ...about(node, id) });
      for (const [said, value] of choices) {
        const box = make("input", "", { type: "radio", name: id, value });
        box.addEventListener("change", () => { mark(value); chosen(value); });
        group.append(make("label", "", {}, box, make("span", "", {}, said)));
      }
      const mark = (wish) => group.querySelectorAll("input").forEach((box) => {
        box.checked = box.value === wish;
        box.parentElement.classList.toggle("selected", box.checked);
      });
      const named = make("span", "kv-label", { id: id + "-label" }, node.label);
      return { root: make("div", css(node, "choice"), { id }, named, group, ...info(node, id)), mark };
    }

    /* A message marks what it is about, and opens what it stands in. */
    function message(root, html, about) {
      if (root.kvHtml === html) return;
      root.innerHTML = root.kvHtml = html;
      const beside = (about && about.root) || root.previousElementSibling;
      const box = beside && beside.querySelector("textarea, input[type=number], select");
      if (box) html ? box.setAttribute("aria-invalid", "true") : box.removeAttribute("aria-invalid");
      for (let fold = html && root.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    }

    function cards(node, id) {
      const list = make("div", "kv-text-cards");
      const tool = (name, said) => make("button", "kv-small-button", { type: "button", id: `${node.ids}-${name}` }, said);
      const add = tool("add", `Add a ${node.noun}`), shuffle = tool("shuffle", "Shuffle");
      const root = make("div", "kv-field", { id }, list, make("div", "kv-line kv-card-tools", {}, add, shuffle));
      const noun = node.noun[0].toUpperCase() + node.noun.slice(1);
      const now = () => [...list.querySelectorAll("textarea")].map((box) => box.value);
      const change = (texts, focus) => {
        draw(texts);
        edit(node.name, texts);
        if (focus) focus().focus();
      };
      const moves = {
        up: (texts, i) => texts.splice(i - 1, 2, texts[i], texts[i - 1]),
        down: (texts, i) => texts.splice(i, 2, texts[i + 1], texts[i]),
        remove: (texts, i) => texts.splice(i, 1),
      };
      const after = { up: -1, down: 1, remove: 0 };
      function card(i) {
        const box = make("textarea", "", { "aria-label": `${noun} ${i + 1}`, rows: node.lines || 2 });
        box.addEventListener("input", () => edit(node.name, now()));
        const buttons = Object.entries(ICONS).map(([what, [icon, said]]) => {
          const button = make("button", "kv-card-button", { type: "button", id: `${node.ids}-${what}-${i}`, "aria-label": `${said} ${node.noun} ${i + 1}`, title: said }, icon);
          button.addEventListener("click", () => {
            const texts = now();
            moves[what](texts, i);
            change(texts, () => {
              const there = list.children[Math.min(i + after[what], texts.length - 1)];
              const again = there.querySelector(`[id^="${node.ids}-${what}-"]`);
              return again.disabled ? there.querySelector("textarea") : again;
            });
          });
          return button;
        });
        const head = make("div", "kv-card-head", {}, make("b", "kv-card-name", {}, `${noun} ${i + 1}`), ...buttons);
        const said = make("div", "kv-errors", { id: `kv-error-${node.ids.slice(3)}-text-${i}` });
        const name = `error_${node.name}_${i}`;
        nodes[name] = { root: said, look: {}, show: (how) => message(said, how.html || "") };
        const body = make("div", "kv-card-text", { id: `${node.ids}-text-${i}` }, box);
        const made = make("div", "kv-text-card", { id: `${node.ids}-card-${i}` }, head, body, said);
        if (shown[name]) nodes[name].show(shown[name]);
        return made;
      }
      function draw(texts) {
        while (list.children.length > texts.length) list.lastElementChild.remove();
        while (list.children.length < texts.length) list.append(card(list.children.length));
        texts.forEach((said, i) => {
          const there = list.children[i];
          put(there.querySelector("textarea"), said);
          const [up, down, remove] = there.querySelectorAll("button");
          up.disabled = i === 0;
          down.disabled = i === texts.length - 1;
          remove.disabled = texts.length <= node.fewest;
        });
        add.disabled = texts.length >= node.most;
        shuffle.disabled = texts.length < 2;
      }
      add.addEventListener("click", () => change([...now(), ""], () => list.lastElementChild.querySelector("textarea")));
      shuffle.addEventListener("click", () => {
        const texts = now(), order = [...texts.keys()];
        do {
          for (let i = order.length - 1; i > 0; i--) {
            const j = Math.floor(Math.random() * (i + 1));
            [order[i], order[j]] = [order[j], order[i]];
          }
        } while (order.every((at, i) => at === i));
        change(order.map((at) => texts[at]));
      });
      return { root, set: (texts) => draw([...(texts || [])]) };
    }

    function inside(node) {
      return (node.items || []).map((item) => {
        const id = (item.id || (item.name ? `${ids}-${item.name}` : "")) + suffix;
        const made = kinds[item.kind](item, id);
        made.look = item;
        made.root.hidden = Boolean(item.hidden);
        if (item.name) nodes[item.name] = made;
        return made.root;
      });
    }

    return inside;
    }

    /* Panels once more, each with values of its own; "kv-column" on the page asks for one, or pins one. */
    function copies(node, id) {
      const root = make("div", "kv-copies", { id });
      const drawn = new Map(); // by label: {entry, card, read}
      const label = (entry) => `${entry.of} ${entry.number}`;
      const now = () => values[node.name] || [];
      const panelOf = (of) => spec.find((item) => item.name === "panel_" + of);
      const fits = (item) => !["note", "message"].includes(item.kind) && item.css !== "kv-adds";

      function card(entry) {
        const mine = { entry };
        const scope = {
          nodes: {}, profiles: [], suffix: "-" + entry.number,
          values: () => mine.entry.values,
          write(changes) {
            mine.entry = { ...mine.entry, values: { ...mine.entry.values, ...changes } };
            write({ [node.name]: now().map((one) => (label(one) === label(entry) ? mine.entry : one)) });
            scope.profiles.forEach((mark) => mark());
          },
          read() {
            for (const [name, value] of Object.entries(mine.entry.values)) if (scope.nodes[name]) scope.nodes[name].set(value);
            scope.profiles.forEach((mark) => mark());
          },
        };
        const gone = make("button", "kv-card-button", { type: "button", title: "Remove this column", "aria-label": `Remove ${node.titles[entry.of]} ${entry.number}` }, "×");
        gone.addEventListener("click", () => act("remove", label(entry)));
        const head = make("div", "kv-card-head", {}, make("b", "kv-card-name", {}, `${node.titles[entry.of]} ${entry.number}`), gone);
        mine.card = make("div", "kv-method-panel kv-copy", { id: `kv-copy-${entry.of}-${entry.number}` }, head);
        if (entry.exact) mine.card.append(make("p", "kv-help", {}, node.repaired));
        mine.card.append(...drawing(scope)({ items: panelOf(entry.of).items.filter(fits) }));
        mine.read = scope.read;
        return mine;
      }

      function set(list) {
        const wanted = new Map((list || []).filter((one) => panelOf(one.of)).map((one) => [label(one), one]));
        for (const [name, mine] of drawn) if (!wanted.has(name)) { mine.card.remove(); drawn.delete(name); }
        for (const [name, entry] of wanted) {
          if (!drawn.has(name)) drawn.set(name, card(entry));
          const mine = drawn.get(name);
          mine.entry = entry;
          mine.read();
          if (mine.card.parentElement !== root) root.append(mine.card);
        }
      }

      function act(what, name, column) {
        const list = now(), source = list.find((one) => label(one) === name);
        if (what === "pin") write({ pinned: values.pinned === name ? "" : name });
        if (what === "remove" && source) {
          write({ [node.name]: list.filter((one) => one !== source), pinned: values.pinned === name ? "" : values.pinned });
          set(now());
        }
        if (!["duplicate", "repair"].includes(what)) return;
        const own = () => Object.fromEntries(Object.entries(values).filter(([key]) => key.startsWith(name + ":")));
        const { of, exact, values: given } = column || source || { of: name, exact: "", values: own() };
        if (!panelOf(of) || list.length >= node.most) return;
        const number = Math.max(1, ...list.filter((one) => one.of === of).map((one) => one.number)) + 1;
        const entry = { of, number, exact, values: { ...given } };
        write({ [node.name]: [...list, entry], pinned: values.pinned || name });
        set(now());
        if (column) return document.getElementById("kv-comparison").scrollIntoView();
        const made = drawn.get(label(entry)).card;
        made.scrollIntoView({ block: "center" });
        const first = made.querySelector("input[type=number]") || made.querySelector("input");
        if (first) first.focus({ preventScroll: true });
      }
      document.addEventListener("kv-column", (event) => { if (root.isConnected) act(event.detail.act, event.detail.label, event.detail.column); });
      return { root, set };
    }

    /* ---- what the server says ------------------------------------------------------------------- */

    function read() {
      values = { ...props.value };
      for (const [name, value] of Object.entries(values)) if (nodes[name] && nodes[name].set) nodes[name].set(value);
      profiles.forEach((mark) => mark());
    }

    function show() {
      const next = props.shown || {};
      if ((next.number || 0) < newest) return;
      newest = next.number || 0;
      for (const [name, how] of Object.entries(next)) {
        const node = nodes[name];
        if (!node || same(how, shown[name])) continue;
        const look = { ...node.look, ...how };
        node.root.hidden = "visible" in how ? !how.visible : Boolean(node.look.hidden);
        if (node.show) node.show(look);
      }
      shown = next;
    }

    const own = { nodes, profiles, suffix: "", values: () => values, write, read };
    host.replaceChildren(...drawing(own)({ items: spec }));
    read();
    show();
    watch("value", read);
    watch("shown", show);
  }

  window.KVFields = { mount };
})();
