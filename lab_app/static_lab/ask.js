
/* The page on which a visitor asks: two answers, and the token at which they part. */
(async () => {
  "use strict";
  const data = document.getElementById("kv-ask");
  if (!data) return;
  const { parts, examples, most } = JSON.parse(data.textContent);
  const one = (what) => document.querySelector(what);
  const boxes = Object.fromEntries([...document.querySelectorAll("[data-name]")].map((box) => [box.dataset.name, box]));
  const status = one(".kv-ask-status"), button = one(".kv-ask-run"), choice = one(".kv-ask-example");
  const fill = () => Object.entries(examples[choice.value].values).forEach(([name, text]) => { if (boxes[name]) boxes[name].value = text; });
  choice.addEventListener("change", fill);
  fill();

  const model = await window.kvEmbedded.Model.load(window.kvModel).catch((error) => error);
  if (model instanceof Error) {
    status.textContent = `This browser cannot run the model (${model.message}). A current one can; the recorded runs open everywhere.`;
    return;
  }

  /* A prompt's parts as ids. */
  function prompt() {
    const read = parts.map((part) => {
      if (typeof part === "string") return { ids: model.tokenizer.encode(part) };
      return { ids: model.tokenizer.encode(boxes[part.name].value), standIn: model.tokenizer.encode(part.standIn) };
    });
    return [{ ids: model.opening }, ...read, { ids: model.closing }];
  }
  const whole = () => prompt().flatMap((part) => part.ids);

  function show(column, ids, from = ids.length) {
    const place = one(`[data-column="${column}"]`), same = document.createTextNode(model.tokenizer.decode(ids.slice(0, from)));
    const mark = document.createElement("mark");
    mark.textContent = model.tokenizer.decode(ids).slice(same.length);
    place.replaceChildren(same, ...(mark.textContent ? [mark] : []));
  }

  async function answer(column) {
    const began = performance.now(), ids = [];
    const read = await (column === "copied" ? model.copied(prompt()) : model.read(whole()));
    const [before, ms] = [(read.began ?? began) - began, performance.now() - (read.began ?? began)].map(Math.round);
    one(`[data-time="${column}"]`).textContent =
      `${read.began ? `Copies computed in ${before} ms; with them there, the first token` : "First token"} after ${ms} ms. ${read.cache[0].k.length} tokens of prompt.`;
    for await (const id of model.write(read, most)) { ids.push(id); show(column, ids); }
    return ids;
  }

  async function ask() {
    const count = whole().length, room = model.config.max_position_embeddings - most;
    if (count > room) { status.textContent = `The prompt has ${count} tokens; up to ${room} fit. Shorten the documents.`; return; }
    button.disabled = true;
    status.textContent = "The model reads and writes.";
    document.querySelectorAll("[data-column], [data-time]").forEach((place) => place.replaceChildren());
    const dense = await answer("dense"), copied = await answer("copied");
    const parted = dense.findIndex((id, i) => id !== copied[i]);
    const at = parted < 0 ? dense.length : parted;
    show("dense", dense, at);
    show("copied", copied, at);
    const named = (ids) => (at < ids.length ? `“${model.tokenizer.decode([ids[at]]).trim()}”` : "the end");
    status.textContent = at === dense.length && at === copied.length
      ? `Both write the same ${at} tokens.`
      : `The answers part at token ${at + 1}: ${named(dense)} read in full, ${named(copied)} copied.`;
    button.disabled = false;
  }
  button.addEventListener("click", ask);
  button.disabled = false;
  status.textContent = "";
})();
