
/* The static lab: search on the start page, sliders over computed settings, predictions of the tour. */
(() => {
  "use strict";
  const all = (where, what) => [...where.querySelectorAll(what)];

  /* What a page carries as base64 of deflated bytes, as a response to be read as bytes, text or JSON. */
  window.kvUnpacked = async (text) => {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")));
  };

  function search(box) {
    const cards = all(document, ".kv-static-cards > li");
    const count = document.querySelector(".kv-static-count");
    const look = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const card of cards) {
        const text = `${card.textContent} ${card.dataset.words}`.toLowerCase();
        card.hidden = !words.every((word) => text.includes(word));
        shown += !card.hidden;
      }
      for (const group of all(document, ".kv-static-group")) group.hidden = all(group, "li:not([hidden])").length === 0;
      count.textContent = words.length ? `${shown} of ${cards.length} pages` : "";
      history.replaceState(null, "", words.length ? `#${encodeURIComponent(box.value)}` : location.pathname);
    };
    box.addEventListener("input", look);
    if (location.hash) { box.value = decodeURIComponent(location.hash.slice(1)); look(); }
  }

  /* One control is moved at a time: the others go back to where the run was made. */
  function sliders(data) {
    const axes = all(document, "[data-axis]");
    const show = (axis, at) => {
      const setting = data.settings[data.axes[axis].begins + at];
      axes.forEach((box, index) => {
        const here = index === axis ? at : data.axes[index].at;
        box.querySelector("input").value = here;
        box.querySelector("output").textContent = data.axes[index].names[here];
      });
      for (const part of ["note", "verdict", "comparison", "strip"]) document.querySelector(`[data-part="${part}"]`).innerHTML = setting[part];
      window.kvFigures(setting.figures);
      for (const [key, words] of Object.entries(setting.findings)) {
        const place = document.querySelector(`[data-view="${key}"] .kv-finding`);
        if (place) place.innerHTML = words;
      }
    };
    axes.forEach((box, axis) => box.querySelector("input").addEventListener("input", (event) => {
      const at = Number(event.target.value);
      history.replaceState(null, "", `#${data.axes[axis].key}=${at}`);
      show(axis, at);
    }));
    const [key, at] = location.hash.slice(1).split("=");
    const axis = data.axes.findIndex((one) => one.key === key);
    const known = axis >= 0 && Number(at) in data.axes[axis].names;
    show(known ? axis : 0, known ? Number(at) : data.axes[0].at);
  }

  function predict(group) {
    const answer = document.querySelector(".kv-static-answer");
    group.addEventListener("click", (event) => {
      const choice = event.target.closest("[data-choice]");
      if (!choice) return;
      all(group, "[data-choice]").forEach((one) => one.setAttribute("aria-pressed", String(one === choice)));
      answer.hidden = false;
      all(answer, "[data-chosen]").forEach((one) => { one.hidden = one.dataset.chosen !== choice.dataset.choice; });
      window.dispatchEvent(new Event("resize")); // figures were drawn while hidden
    });
    document.querySelectorAll('[data-kv="tour-step"]').forEach((dot) => dot.addEventListener("click", () => {
      location.href = `${Number(dot.dataset.step) + 1}.html`;
    }));
  }

  const box = document.querySelector(".kv-static-search");
  if (box) search(box);
  const data = document.getElementById("kv-static-settings");
  if (data) window.kvUnpacked(data.textContent.trim()).then((answer) => answer.json()).then(sliders).catch((error) => {
    document.querySelector('[data-part="note"]').textContent = `This browser cannot unpack the settings (${error.message}). A current one can.`;
  });
  const group = document.querySelector(".kv-static-guess");
  if (group) predict(group);
})();
