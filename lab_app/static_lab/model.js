/* The embedded model in a page: tokenizer, forward pass, cache. The numbers are in assets/weights.js. */
(() => {
  "use strict";

  /* Text to ids: numbers first, then words, then merges by rank, as tokenizer.json says. */
  class Tokenizer {
    constructor({ vocabulary, merges, special }) {
      this.text = vocabulary;
      this.ids = new Map(vocabulary.map((token, id) => [token, id]));
      this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
      this.special = new Set(special);
      this.letters = []; // of each byte: printable ones stand for themselves
      for (let byte = 0, next = 256; byte < 256; byte++) {
        const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
        this.letters.push(String.fromCodePoint(plain ? byte : next++));
      }
      this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
      this.known = new Map();
    }

    encode(text) {
      const out = [];
      for (const part of text.split(/( ?[0-9]{1,3})/u)) {
        for (const word of part.match(/'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu) || []) {
          const read = [...new TextEncoder().encode(word)].map((byte) => this.letters[byte]).join("");
          if (!this.known.has(read)) this.known.set(read, this.merged([...read]));
          out.push(...this.known.get(read));
        }
      }
      return out;
    }

    merged(parts) {
      for (;;) {
        let best = Infinity;
        for (let i = 0; i + 1 < parts.length; i++) best = Math.min(best, this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity);
        if (best === Infinity) return parts.map((part) => this.ids.get(part));
        const joined = [];
        for (let i = 0; i < parts.length; i++) {
          const pair = i + 1 < parts.length && this.ranks.get(`${parts[i]} ${parts[i + 1]}`) === best;
          joined.push(pair ? parts[i] + parts[++i] : parts[i]);
        }
        parts = joined;
      }
    }

    decode(ids) {
      const bytes = ids.filter((id) => !this.special.has(id)).flatMap((id) => [...this.text[id]].map((letter) => this.bytes.get(letter)));
      return new TextDecoder().decode(new Uint8Array(bytes));
    }
  }

  /* y (rows, n) = x (rows, k) · w (n, k)ᵀ; four rows and four columns at a time keep sixteen sums in registers. */
  function times(x, w, rows, k, n) {
    const y = new Float32Array(rows * n);
    const whole = rows - (rows % 4);
    for (let r = 0; r < whole; r += 4) {
      const a = r * k, b = a + k, c = b + k, d = c + k;
      for (let m = 0; m < n; m += 4) {
        const e = m * k, f = e + k, g = f + k, h = g + k;
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        let t0 = 0, t1 = 0, t2 = 0, t3 = 0, t4 = 0, t5 = 0, t6 = 0, t7 = 0;
        for (let i = 0; i < k; i++) {
          const p = x[a + i], q = x[b + i], u = x[c + i], v = x[d + i];
          const w0 = w[e + i], w1 = w[f + i], w2 = w[g + i], w3 = w[h + i];
          s0 += p * w0; s1 += p * w1; s2 += p * w2; s3 += p * w3;
          s4 += q * w0; s5 += q * w1; s6 += q * w2; s7 += q * w3;
          t0 += u * w0; t1 += u * w1; t2 += u * w2; t3 += u * w3;
          t4 += v * w0; t5 += v * w1; t6 += v * w2; t7 += v * w3;
        }
        let o = r * n + m;
        y[o] = s0; y[o + 1] = s1; y[o + 2] = s2; y[o + 3] = s3; o += n;
        y[o] = s4; y[o + 1] = s5; y[o + 2] = s6; y[o + 3] = s7; o += n;
        y[o] = t0; y[o + 1] = t1; y[o + 2] = t2; y[o + 3] = t3; o += n;
        y[o] = t4; y[o + 1] = t5; y[o + 2] = t6; y[o + 3] = t7;
      }
    }
    for (let r = whole; r < rows; r++) {
      for (let m = 0; m < n; m += 4) {
        const a = r * k, e = m * k, f = e + k, g = f + k, h = g + k;
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (let i = 0; i < k; i++) {
          const p = x[a + i];
          s0 += p * w[e + i]; s1 += p * w[f + i]; s2 += p * w[g + i]; s3 += p * w[h + i];
        }
        const o = r * n + m;
        y[o] = s0; y[o + 1] = s1; y[o + 2] = s2; y[o + 3] = s3;
      }
    }
    return y;
  }

  function normed(x, scale, rows, eps) {
    const size = scale.length, y = new Float32Array(x.length);
    for (let r = 0; r < rows; r++) {
      let sum = 0;
      for (let i = r * size; i < (r + 1) * size; i++) sum += x[i] * x[i];
      const by = 1 / Math.sqrt(sum / size + eps);
      for (let i = 0; i < size; i++) y[r * size + i] = x[r * size + i] * by * scale[i];
    }
    return y;
  }

  const rest = () => new Promise((done) => setTimeout(done));

  class Model {
    constructor(told, flat) {
      const { config } = told;
      this.config = config;
      this.tokenizer = new Tokenizer(told.tokenizer);
      this.opening = told.tokenizer.opening;
      this.closing = told.tokenizer.closing;
      const tensors = [];
      let at = 0;
      for (const size of told.sizes) { tensors.push(flat.subarray(at, at + size)); at += size; }
      const names = ["before", "q", "k", "v", "o", "after", "gate", "up", "down"];
      [this.embedding, this.norm] = tensors;
      this.layers = [];
      for (let i = 2; i < tensors.length; i += names.length) this.layers.push(Object.fromEntries(names.map((name, j) => [name, tensors[i + j]])));
      const half = config.head_dim / 2;
      this.speeds = Float64Array.from({ length: half }, (_, i) => config.rope_parameters.rope_theta ** (-i / half));
    }

    /* Read the numbers: deflated planes of bytes, the lower ones first. */
    static async load(told) {
      const planes = new Uint8Array(await (await window.kvUnpacked(told.weights)).arrayBuffer());
      const count = planes.length / 2, bits = new Uint32Array(count);
      for (let i = 0; i < count; i++) bits[i] = (planes[i] << 16) | (planes[count + i] << 24);
      return new Model(told, new Float32Array(bits.buffer));
    }

    /* A cache is, of every layer, the tokens' keys and values, (tokens, kv heads · head size), keys turned to where they stand. */
    cache() { return this.layers.map(() => ({ k: [], v: [] })); }

    /* Turn keys or queries (rows, heads · head size) by so many positions, each row by one more than the last. */
    turn(x, rows, heads, from) {
      const size = this.config.head_dim, half = size / 2;
      for (let r = 0; r < rows; r++) {
        for (let i = 0; i < half; i++) {
          const angle = (from + r) * this.speeds[i], cos = Math.cos(angle), sin = Math.sin(angle);
          for (let at = r * heads * size + i, h = 0; h < heads; h++, at += size) {
            const a = x[at], b = x[at + half];
            x[at] = a * cos - b * sin;
            x[at + half] = b * cos + a * sin;
          }
        }
      }
    }

    /* Forward tokens behind what a cache holds; the logits after the last one, (vocabulary). */
    async forward(ids, cache) {
      const { hidden_size: wide, num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: size, intermediate_size: inner, rms_norm_eps: eps } = this.config;
      const rows = ids.length, start = cache[0].k.length;
      let x = new Float32Array(rows * wide);
      ids.forEach((id, r) => x.set(this.embedding.subarray(id * wide, (id + 1) * wide), r * wide));
      for (let index = 0; index < this.layers.length; index++) {
        const layer = this.layers[index], held = cache[index];
        const read = normed(x, layer.before, rows, eps);
        const q = times(read, layer.q, rows, wide, heads * size);
        const k = times(read, layer.k, rows, wide, kvHeads * size);
        const v = times(read, layer.v, rows, wide, kvHeads * size);
        this.turn(q, rows, heads, start);
        this.turn(k, rows, kvHeads, start);
        for (let r = 0; r < rows; r++) {
          held.k.push(k.subarray(r * kvHeads * size, (r + 1) * kvHeads * size));
          held.v.push(v.subarray(r * kvHeads * size, (r + 1) * kvHeads * size));
        }
        const seen = this.attend(q, held, rows, start);
        const added = times(seen, layer.o, rows, heads * size, wide);
        for (let i = 0; i < x.length; i++) x[i] += added[i];
        const fed = normed(x, layer.after, rows, eps);
        const gate = times(fed, layer.gate, rows, wide, inner), up = times(fed, layer.up, rows, wide, inner);
        for (let i = 0; i < gate.length; i++) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
        const out = times(gate, layer.down, rows, inner, wide);
        for (let i = 0; i < x.length; i++) x[i] += out[i];
        if (rows > 16) await rest(); // let the page draw
      }
      const last = normed(x.subarray((rows - 1) * wide), this.norm, 1, eps);
      return times(last, this.embedding, 1, wide, this.embedding.length / wide);
    }

    attend(q, held, rows, start) {
      const { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: size } = this.config;
      const out = new Float32Array(rows * heads * size), scores = new Float64Array(start + rows);
      for (let r = 0; r < rows; r++) {
        for (let h = 0; h < heads; h++) {
          const at = (r * heads + h) * size, from = Math.floor((h * kvHeads) / heads) * size, seen = start + r + 1;
          let most = -Infinity, sum = 0;
          for (let t = 0; t < seen; t++) {
            const key = held.k[t];
            let score = 0;
            for (let i = 0; i < size; i++) score += q[at + i] * key[from + i];
            scores[t] = score / Math.sqrt(size);
            if (scores[t] > most) most = scores[t];
          }
          for (let t = 0; t < seen; t++) sum += scores[t] = Math.exp(scores[t] - most);
          for (let t = 0; t < seen; t++) {
            const weight = scores[t] / sum, value = held.v[t];
            for (let i = 0; i < size; i++) out[at + i] += weight * value[from + i];
          }
        }
      }
      return out;
    }

    /* A prompt read in full. */
    async read(ids) {
      const cache = this.cache();
      return { logits: await this.forward(ids, cache), cache };
    }

    /* A prompt put together from copies whose keys are turned to their new place; its last token is read over them.
       Parts are `{ ids }` of the template, or `{ ids, standIn }` of a text: the text was read alone behind the first
       token, the template with the stand-ins in place of its texts. `began`: when all copies were there. */
    async copied(parts) {
      const cache = this.cache(), template = this.cache(), first = this.opening.slice(0, 1), sources = [];
      let there = 0;
      await this.forward(parts.flatMap((part) => part.standIn || part.ids), template);
      for (const { ids, standIn } of parts) {
        if (standIn) {
          const alone = this.cache();
          if (ids.length) await this.forward([...first, ...ids], alone);
          sources.push([alone, first.length, ids.length]);
        } else sources.push([template, there, ids.length]);
        there += (standIn || ids).length;
      }
      const began = performance.now();
      for (const source of sources) this.move(...source, cache);
      for (const { k, v } of cache) { k.pop(); v.pop(); }
      return { logits: await this.forward(parts[parts.length - 1].ids.slice(-1), cache), cache, began };
    }

    /* Put so many tokens of a cache, from `start` on, behind what another holds. */
    move(from, start, count, to) {
      const shift = to[0].k.length - start;
      from.forEach(({ k, v }, layer) => {
        for (let i = start; i < start + count; i++) {
          const key = k[i].slice();
          if (shift) this.turn(key, 1, this.config.num_key_value_heads, shift);
          to[layer].k.push(key);
          to[layer].v.push(v[i]);
        }
      });
    }

    /* The most likely next tokens, one by one, until the stop token; results of calculations are filled in. */
    async *write(prompt, most) {
      const ids = [], filled = [];
      let { logits } = prompt;
      while (ids.length < most) {
        let best = 0;
        if (filled.length) best = filled.shift();
        else for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
        if (best === this.config.eos_token_id) return;
        ids.push(best);
        yield best;
        if (!filled.length && this.config.fills_results) filled.push(...this.tokenizer.encode(resultAfter(this.tokenizer.decode(ids.slice(-24)))));
        logits = await this.forward([best], prompt.cache);
      }
    }
  }

  /* backend/prompts/filled_results.py */
  function resultAfter(text) {
    const sum = text.match(/([0-9]{1,12}) ([-+*/%]|\/\/) ([0-9]{1,12}) =$/);
    if (sum) {
      const a = BigInt(sum[1]), b = BigInt(sum[3]);
      if (b === 0n && "//%".includes(sum[2])) return "";
      if (sum[2] === "/") return ` ${(Number(a) / Number(b)).toFixed(4).replace(/\.?0+$/, "")}`;
      return ` ${{ "+": a + b, "-": a - b, "*": a * b, "//": b && a / b, "%": b && a % b }[sum[2]]}`;
    }
    const order = text.match(/([0-9]{1,12}) ([<>]=?|[=!]=) ([0-9]{1,12}) is$/);
    if (!order) return "";
    const a = Number(order[1]), b = Number(order[3]);
    const holds = { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a === b, "!=": a !== b }[order[2]];
    return holds ? " True" : " False";
  }

  window.kvEmbedded = { Model, resultAfter };
})();
