"use strict";
// Everything that is shown goes through textContent: names are the user's and are never read as HTML.
(() => {
  const plans = [].concat(JSON.parse(document.getElementById("plan").textContent));
  const jobInAddress = () => new URLSearchParams(location.hash.slice(1)).get("job");
  const plan = plans.find((one) => one.job === jobInAddress()) || plans[0];
  const PARTS = ["forward", "backward", "update"];
  const $ = (id) => document.getElementById(id);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const isSent = (step) => step.collective !== "slice" && step.collective !== "none";

  // ---------------------------------------------------------------- small parts

  function el(tag, options = {}, ...children) {
    const { class: className, on, ...attributes } = options;
    const node = document.createElement(tag);
    if (className) node.className = className;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    for (const [event, handler] of Object.entries(on || {})) node.addEventListener(event, handler);
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function scaled(count, step, units) {
    let place = 0;
    for (; count >= step - 0.5 && place < units.length - 1; place++) count /= step;
    const digits = place === 0 ? 0 : count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
    return `${count.toFixed(digits)} ${units[place]}`;
  }
  const bytes = (count) => scaled(count, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  const flops = (count) => scaled(count, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"]);
  const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
  const shapeText = (shape, by = "×") => shape.join(by) || "scalar";
  const sameShape = (a, b) => a.length === b.length && a.every((size, i) => size === b[i]);
  const short = (aten) => aten.replace(/^aten\./, "").replace(/\.default$/, "");

  function sbp(layouts) {
    const box = el("span", { class: "sbp" });
    for (const layout of layouts) box.append(el("b", { class: "SBP".includes(layout[0]) ? layout[0] : "" }, layout));
    return box;
  }

  function bar(parts, whole, className = "") {
    const box = el("div", { class: `bar ${className}` });
    for (const part of parts) {
      const piece = el("i");
      piece.style.width = `${whole ? (100 * part) / whole : 0}%`;
      box.append(piece);
    }
    return box;
  }

  const arrow = () => el("span", { class: "arrow" }, "→");

  function shape(op) {
    const box = el("span", { class: "shape" }, el("em", {}, `${op.dtype} `), shapeText(op.shape));
    if (!sameShape(op.shape, op.local_shape)) box.append(el("em", {}, " → "), shapeText(op.local_shape));
    return box;
  }

  function table(heads, rows) {
    const cell = (tag, value, head) => el(tag, head.number ? { class: "number" } : {}, value);
    const top = el("tr", {}, ...heads.map((head) => cell("th", head.text, head)));
    const body = rows.map((row) => el("tr", {}, ...row.map((value, i) => cell("td", value, heads[i]))));
    return el("table", {}, el("thead", {}, top), el("tbody", {}, ...body));
  }
  const text = (value) => ({ text: value });
  const number = (value) => ({ text: value, number: true });

  // ---------------------------------------------------------------- summary

  const traffic = (rank) => sum(Object.values(rank.communicated).map((t) => t.bytes));

  function card(title, big, ...rest) {
    const [value, unit] = big.split(" ");
    const number = el("div", { class: "big" }, value, el("small", {}, unit ? ` ${unit}` : ""));
    return el("article", { class: "card" }, el("h2", {}, title), number, ...rest);
  }
  const sub = (value) => el("p", { class: "sub" }, value);

  function labelled(label, value, ...rest) {
    return el("div", {}, el("div", { class: "bar-label" }, el("span", {}, label), el("span", {}, value)), ...rest);
  }

  function over(values, unit) {
    if (!values.length) return "no rank is planned";
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return unit(low) === unit(high) ? "a rank, each step" : `busiest rank; the lightest ${unit(low)}`;
  }

  function operationsCard() {
    const each = plan.ranks.map((rank) => rank.flops);
    const total = sum(plan.ranks.map((rank) => rank.flops * rank.count));
    const work = (part) => sum(plan.ops.filter((op) => op.part === part).map((op) => op.flops));
    const parts = PARTS.map((part) => [part, work(part)]);
    const all = sum(parts.map(([, value]) => value));
    const share = (value) => `${((100 * value) / all).toFixed(value / all < 0.1 ? 1 : 0)} %`;
    const bars = parts.filter(([, value]) => value).map(([part, value]) => labelled(part, share(value), bar([value], all)));
    const rest = [sub(over(each, flops)), sub(`${flops(total)} on all devices`)];
    return card("Operations", flops(Math.max(0, ...each)), ...rest, el("div", { class: "bars" }, ...bars));
  }

  function communicationCard() {
    const busiest = plan.ranks.reduce((a, b) => (traffic(b) > traffic(a) ? b : a), { communicated: {} });
    const kinds = Object.entries(busiest.communicated).sort((a, b) => b[1].bytes - a[1].bytes);
    const most = kinds.length ? kinds[0][1].bytes : 0;
    const rows = kinds.map(([name, t]) => labelled(name, `${bytes(t.bytes)} · ${t.calls}×`, bar([t.bytes], most, "comm")));
    const about = kinds.length ? over(plan.ranks.map(traffic), bytes) : "nothing is communicated";
    return card("Communication", bytes(traffic(busiest)), sub(about), el("div", { class: "bars" }, ...rows));
  }

  function memoryCard() {
    const most = plan.ranks.reduce((a, b) => (b.peak_memory > a.peak_memory ? b : a), { peak_memory: 0, variables: 0 });
    const rest = Math.max(0, most.peak_memory - most.variables);
    const part = (name, value) => labelled(name, bytes(value), bar([value], most.peak_memory));
    const about = over(plan.ranks.map((rank) => rank.peak_memory), bytes);
    const rows = el("div", { class: "bars" }, part("variables", most.variables), part("everything else", rest));
    return card("Peak memory", bytes(most.peak_memory), sub(about), rows);
  }

  function devicesCard() {
    const stages = new Set(plan.ranks.map((rank) => rank.stage).filter((stage) => stage !== null));
    const facts = [plan.axes.length > 1 ? plan.axes.join(" × ") : "one axis"];
    if (stages.size > 1) facts.push(counted(stages.size, "stage"));
    if (plan.micro_batches > 1) facts.push(counted(plan.micro_batches, "micro-batch", "micro-batches"));
    if (plan.stages > 1) {
      const busy = plan.micro_batches / (plan.micro_batches + plan.stages - 1);
      facts.push(`${plan.stages} stages, busy ${(100 * busy).toFixed(1)} %`);
    }
    const mesh = el("canvas", { class: "mesh", id: "mesh", "aria-hidden": "true" });
    return card("Devices", `${plan.devices} ${plan.device_type}`, sub(facts.join(" · ")), mesh);
  }

  function showSummary() {
    document.title = `${plan.job}: plan`;
    $("job").textContent = plan.job;
    $("kind").textContent = plan.kind;
    const counts = [[plan.devices, `${plan.device_type} device`], [plan.ops.length, "op"], [plan.variables.length, "variable"]];
    $("about").textContent = counts.map(([count, what]) => counted(count, what)).join(" · ");
    $("summary").append(operationsCard(), communicationCard(), memoryCard(), devicesCard());
    const swatch = (kind, words) => el("span", {}, el("i", { class: `swatch ${kind}` }), words);
    $("legend").append(
      swatch("S", "S split"), swatch("B", "B broadcast"), swatch("P", "P partial sum"), swatch("comm", "bytes communicated"),
      el("span", {}, "up: operations of a rank · down: bytes · both as square roots · click to go there"));
  }

  function showJobs() {
    $("jobs").hidden = plans.length < 2;
    for (const one of plans) {
      const choose = () => { location.hash = new URLSearchParams({ job: one.job }); };
      $("jobs").append(el("button", { class: "chip", type: "button", "aria-pressed": one === plan, on: { click: choose } }, one.job));
    }
  }

  function showNotes() {
    $("notes").hidden = plan.notes.length === 0;
    $("notes").querySelector("ul").append(...plan.notes.map((note) => el("li", {}, note)));
  }

  function showRanks() {
    const hasStages = plan.ranks.some((rank) => rank.stage !== null);
    const numbers = ["count", ...(hasStages ? ["stage"] : []), "operations", "variables", "peak memory", "communicated"];
    const heads = [text("ranks"), ...numbers.map(number), text("by collective")];
    const kinds = (rank) => Object.entries(rank.communicated).map(([name, t]) => `${name} ${bytes(t.bytes)}`).join(" · ") || "none";
    const stage = (rank) => (hasStages ? [rank.stage === null ? "–" : String(rank.stage)] : []);
    const costs = (rank) => [flops(rank.flops), bytes(rank.variables), bytes(rank.peak_memory), bytes(traffic(rank))];
    const rows = plan.ranks.map((rank) => [rank.ranks, String(rank.count), ...stage(rank), ...costs(rank), kinds(rank)]);
    $("ranks").hidden = plan.ranks.length < 2;
    $("ranks").querySelector(".scroll").append(table(heads, rows));
  }

  /** A table that is made when it is first opened: there may be a thousand variables. */
  function panel(id, about, heads, rows) {
    $(id).hidden = false;
    $(id).querySelector("summary span").textContent = about;
    $(id).addEventListener("toggle", () => $(id).querySelector(".scroll").append(table(heads, rows())), { once: true });
  }

  function showBuckets() {
    const buckets = new Map();
    for (const step of plan.ops.flatMap((op) => op.boxing).filter((step) => step.bucket !== null)) {
      buckets.set(step.bucket, [...(buckets.get(step.bucket) || []), step]);
    }
    if (!buckets.size) return;
    const sizes = new Map([...buckets].map(([bucket, steps]) => [bucket, sum(steps.map((step) => step.bytes))]));
    const most = Math.max(...sizes.values());
    const row = ([bucket, steps]) => {
      const names = steps.length > 1 ? `${steps[0].value} … ${steps[steps.length - 1].value}` : steps[0].value;
      return [bucketChip(bucket), String(steps.length), bytes(sizes.get(bucket)), bar([sizes.get(bucket)], most, "comm"), names];
    };
    const heads = [text("bucket"), number("gradients"), number("bytes"), text(""), text("from … to")];
    const about = `${counted(buckets.size, "call")} for ${bytes(sum([...sizes.values()]))} of gradients`;
    panel("buckets", about, heads, () => [...buckets].sort((a, b) => a[0] - b[0]).map(row));
  }

  function showVariables() {
    if (!plan.variables.length) return;
    const most = Math.max(...plan.variables.map((v) => v.bytes));
    const spec = (v) => el("span", { class: "mono" }, `${v.dtype} ${shapeText(v.shape)}`);
    const row = (v) => [v.name, spec(v), sbp(v.sbp), v.placement, bytes(v.bytes), bar([v.bytes], most)];
    const heads = [text("name"), text("shape"), text("SBP"), text("placement"), number("a rank"), text("")];
    panel("variables", counted(plan.variables.length, "variable"), heads, () => plan.variables.map(row));
  }

  // ---------------------------------------------------------------- the flow of ops

  /** Neighbours that come from one op of the user in one part of the step. */
  function grouped(ops) {
    const groups = [];
    for (const op of ops) {
      const last = groups[groups.length - 1];
      if (last && last.name === op.name && last.part === op.part && last.placement === op.placement) last.ops.push(op);
      else groups.push({ name: op.name, part: op.part, placement: op.placement, ops: [op] });
    }
    for (const group of groups) describe(group);
    return groups;
  }

  function describe(group) {
    group.boxing = group.ops.flatMap((op) => op.boxing);
    group.flops = sum(group.ops.map((op) => op.flops));
    group.noRule = group.ops.some((op) => !op.has_rule);
    const steps = group.boxing.flatMap((s) => [s.collective, s.value, ...s.from_sbp, ...s.to_sbp, s.to_placement]);
    const ofOp = (op) => [op.name, op.op, op.aten, op.part, op.line, ...op.sbp, op.dtype, shapeText(op.shape, "x"), op.placement];
    const ops = group.ops.flatMap(ofOp);
    group.words = [...ops, ...steps].join("\n").toLowerCase();
  }

  function bucketChip(bucket) {
    const find = (event) => { event.preventDefault(); search(`bucket:${bucket}`); };
    const title = "show what is in this bucket";
    return el("button", { class: "chip small", type: "button", title, on: { click: find } }, `bucket ${bucket}`);
  }

  /** One line a boxing; the gradients of a bucket are one line, for they are one call. */
  function merged(steps) {
    const lines = [];
    for (const step of steps) {
      const last = lines[lines.length - 1];
      const isSame = last && step.bucket !== null && last.bucket === step.bucket;
      if (isSame) Object.assign(last, { bytes: last.bytes + step.bytes, count: last.count + 1 });
      else lines.push({ ...step, count: 1 });
    }
    return lines;
  }

  function boxingLine(step) {
    const moved = step.from_placement !== step.to_placement;
    return el("div", { class: isSent(step) ? "step" : "step local" },
      el("span", { class: "what" }, step.collective),
      el("span", {}, step.count > 1 ? counted(step.count, "gradient") : step.value),
      el("span", {}, sbp(step.from_sbp), arrow(), sbp(step.to_sbp)),
      moved ? el("span", { class: "muted" }, step.from_placement, arrow(), step.to_placement) : null,
      step.bucket === null ? null : bucketChip(step.bucket),
      el("span", { class: "bytes" }, step.bytes ? bytes(step.bytes) : ""));
  }

  const MOST_LINES = 8;

  function boxingLines(lines) {
    const box = el("div", { class: "steps" }, ...lines.slice(0, MOST_LINES).map(boxingLine));
    const rest = lines.slice(MOST_LINES);
    if (rest.length) {
      const more = el("button", { class: "chip", type: "button" }, `${rest.length} more, ${bytes(sum(rest.map((step) => step.bytes)))}`);
      more.addEventListener("click", () => more.replaceWith(...rest.map(boxingLine)));
      box.append(more);
    }
    return box;
  }

  function atenRow(op) {
    return el("div", { class: "aten" },
      el("span", { class: "mono" }, short(op.aten), op.has_rule ? null : el("span", { class: "norule" }, " runs whole")),
      sbp(op.sbp), shape(op),
      el("span", { class: "end" }, op.flops ? flops(op.flops) : ""),
      el("span", { class: "end muted" }, op.placement));
  }

  function inside(group) {
    const each = (op) => boxingLines(op.boxing.map((step) => ({ ...step, count: 1 })));
    return group.ops.flatMap((op) => (group.opensSteps && op.boxing.length ? [each(op), atenRow(op)] : [atenRow(op)]));
  }

  function groupCard(group, mostFlops, manyPlacements) {
    const op = group.ops[group.ops.length - 1];
    const name = el("span", {}, el("span", { class: "name" }, group.name), " ", el("span", { class: "row-name" }, op.op),
      manyPlacements ? el("span", {}, " ", el("span", { class: "where" }, group.placement)) : null,
      group.noRule ? el("span", { class: "norule" }, " runs whole: no rule") : null);
    const cost = el("span", { class: "cost" });
    if (group.flops) cost.append(flops(group.flops), bar([Math.sqrt(group.flops)], Math.sqrt(mostFlops)));
    const body = el("div", { class: "inside" });
    const fill = () => { if (!body.childElementCount) body.append(...inside(group)); };
    const line = el("span", { class: "user-line", title: op.line }, op.line.split(/[\\/]/).pop());
    const summary = el("summary", {}, name, sbp(op.sbp), shape(op), cost, line);
    const details = el("details", { on: { toggle: fill } }, summary, body);
    group.summary = summary;
    const steps = merged(group.boxing);
    group.opensSteps = group.ops.length > 1 || steps.length < group.boxing.length; // then the open card tells more of them
    group.card = el("article", { class: group.opensSteps ? "op many" : "op", "data-name": group.name, "data-part": group.part },
      steps.length ? boxingLines(steps) : null, details);
    return group.card;
  }

  function showFlow(groups) {
    const mostFlops = Math.max(1, ...groups.map((group) => group.flops));
    const manyPlacements = new Set(plan.ops.map((op) => op.placement)).size > 1;
    const sections = [];
    for (const group of groups) {
      let section = sections[sections.length - 1];
      if (!section || section.part !== group.part) sections.push((section = { part: group.part, groups: [] }));
      section.groups.push(group);
    }
    for (const section of sections) {
      const ops = section.groups.flatMap((group) => group.ops);
      const about = `${counted(ops.length, "op")} · ${flops(sum(ops.map((op) => op.flops)))}`;
      section.head = el("div", { class: "part" }, el("h2", {}, section.part), el("span", { class: "muted" }, about));
      $("flow").append(section.head, ...section.groups.map((group) => groupCard(group, mostFlops, manyPlacements)));
    }
    return sections;
  }

  // ---------------------------------------------------------------- search and filters, kept in the address after "#"

  const BUCKET = /^bucket:\d+$/;
  const ONLY = { boxing: "only boxing", "no-rule": "without rule" };
  const state = { q: "", part: new Set(), only: new Set() };

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const chosen = (name, known) => new Set((given.get(name) || "").split(",").filter((value) => known.includes(value)));
    Object.assign(state, { q: given.get("q") || "", part: chosen("part", PARTS), only: chosen("only", Object.keys(ONLY)) });
  }

  function writeAddress() {
    const job = plans.length > 1 ? plan.job : "";
    const values = Object.entries({ job, q: state.q, part: [...state.part].join(), only: [...state.only].join() }).filter(([, value]) => value);
    const address = values.length ? `#${new URLSearchParams(values)}` : "#";
    try {
      history.replaceState(null, "", address);
    } catch {
      // a frame without an address of its own, as in a notebook
    }
  }

  function isShown(group, words) {
    if (state.part.size && !state.part.has(group.part)) return false;
    if (state.only.has("boxing") && !group.boxing.length) return false;
    if (state.only.has("no-rule") && !group.noRule) return false;
    const isIn = (word) => group.boxing.some((step) => `bucket:${step.bucket}` === word);
    return words.every((word) => (BUCKET.test(word) ? isIn(word) : group.words.includes(word)));
  }

  function apply() {
    const words = state.q.toLowerCase().replaceAll("×", "x").split(/\s+/).filter(Boolean);
    for (const group of groups) {
      group.shown = isShown(group, words);
      group.card.hidden = !group.shown;
    }
    for (const section of sections) section.head.hidden = !section.groups.some((group) => group.shown);
    const shown = sum(groups.filter((group) => group.shown).map((group) => group.ops.length));
    const all = counted(plan.ops.length, "op");
    $("count").textContent = shown === plan.ops.length ? all : `${shown.toLocaleString("en")} of ${all}`;
    $("nothing").hidden = shown > 0 || plan.ops.length === 0;
    if ($("search").value !== state.q) $("search").value = state.q;
    for (const chip of $("filters").children) chip.setAttribute("aria-pressed", String(state[chip.dataset.kind].has(chip.dataset.value)));
    drawGlance();
  }

  function change(changes) {
    Object.assign(state, changes);
    writeAddress();
    apply();
  }
  const search = (q) => change({ q });
  const showAll = () => change({ q: "", part: new Set(), only: new Set() });

  function addFilters() {
    const chips = [...PARTS.map((part) => ["part", part, part]), ...Object.entries(ONLY).map(([value, words]) => ["only", value, words])];
    for (const [kind, value, words] of chips) {
      const flip = () => {
        const chosen = new Set(state[kind]);
        if (!chosen.delete(value)) chosen.add(value);
        change({ [kind]: chosen });
      };
      const data = { "data-kind": kind, "data-value": value };
      $("filters").append(el("button", { class: "chip", type: "button", ...data, on: { click: flip } }, words));
    }
    $("search").addEventListener("input", () => search($("search").value));
    $("clear").addEventListener("click", showAll);
    addEventListener("hashchange", () => {
      if ((jobInAddress() || plans[0].job) !== plan.job && plans.length > 1) location.reload();
      readAddress();
      apply();
    });
  }

  // ---------------------------------------------------------------- keyboard

  function step(direction) {
    const shown = groups.filter((group) => group.shown);
    const here = shown.findIndex((group) => group.card.contains(document.activeElement));
    const next = shown[here < 0 ? (direction > 0 ? 0 : shown.length - 1) : here + direction];
    if (next) goTo(next);
  }

  function goTo(group) {
    group.summary.focus({ preventScroll: true });
    const show = () => group.card.scrollIntoView({ block: "center" });
    show();
    requestAnimationFrame(show); // what came into view now has its real height
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = document.activeElement === $("search");
    const isAtOp = groups.some((group) => group.card.contains(document.activeElement));
    if (event.key === "/" && !isTyping) { event.preventDefault(); $("search").focus(); $("search").select(); }
    else if (event.key === "Escape") { $("search").blur(); showAll(); }
    else if (event.key === "ArrowDown" && (isTyping || isAtOp)) { event.preventDefault(); step(1); }
    else if (event.key === "ArrowUp" && isAtOp) { event.preventDefault(); step(-1); }
  });

  // ---------------------------------------------------------------- pictures

  function painter(canvas) {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return { context, width, height, colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(name) };
  }

  /** Every op a column: operations above the line, coloured by SBP, bytes below it. */
  function drawGlance() {
    const { context, width, height, colour } = painter($("glance"));
    const middle = Math.round(height * 0.62);
    const most = { flops: 1, bytes: 1 };
    for (const column of columns) {
      most.flops = Math.max(most.flops, column.op.flops);
      most.bytes = Math.max(most.bytes, column.bytes);
    }
    const colours = { S: colour("--s"), B: colour("--b"), P: colour("--p"), comm: colour("--comm") };
    const wide = width / Math.max(1, columns.length);
    const thick = Math.max(1, wide * 0.8);
    columns.forEach(({ op, bytes: sent, group }, i) => {
      context.globalAlpha = group.shown ? 1 : 0.12;
      const tall = op.flops ? Math.max(1.5, (middle - 4) * Math.sqrt(op.flops / most.flops)) : 1;
      const kinds = op.sbp.map((layout) => layout[0]);
      context.fillStyle = colours[["P", "S"].find((kind) => kinds.includes(kind)) || "B"];
      const left = wide < 2 ? Math.round(i * wide) : i * wide; // thin columns on whole pixels, else they blur into stripes
      context.fillRect(left, middle - tall, thick, tall);
      const deep = sent ? Math.max(2, (height - middle - 4) * Math.sqrt(sent / most.bytes)) : 0;
      context.fillStyle = colours.comm;
      context.fillRect(left, middle + 2, thick, deep);
    });
    context.globalAlpha = 1;
    context.fillStyle = colour("--line");
    context.fillRect(0, middle, width, 1);
  }

  /** Every device a square, in rows as the last axis has them; a stage has a shade of its own. */
  function drawMesh() {
    const { context, width, height, colour } = painter($("mesh"));
    const filling = Math.max(Math.ceil(Math.sqrt((plan.devices * width) / height)), Math.min(plan.devices, Math.floor(width / 28)));
    const across = plan.axes.length > 1 ? plan.axes[plan.axes.length - 1] : filling;
    const down = Math.ceil(plan.devices / across);
    const cell = Math.min(width / across, height / down, 28);
    const shades = [1, 0.45, 0.75, 0.3, 0.6];
    context.fillStyle = colour("--s");
    for (const [i, rank] of plan.ranks.entries()) {
      context.globalAlpha = shades[(rank.stage === null ? i : rank.stage) % shades.length];
      for (const run of rank.ranks.split(",")) {
        const [first, last] = run.split("-").map(Number);
        for (let device = first; device <= (last === undefined ? first : last); device++) {
          context.fillRect((device % across) * cell, Math.floor(device / across) * cell, cell * 0.82, cell * 0.82);
        }
      }
    }
  }

  function draw() {
    drawGlance();
    drawMesh();
  }

  const columnAt = (event) => columns[Math.floor((event.offsetX / $("glance").clientWidth) * columns.length)];
  $("glance").addEventListener("click", (event) => { const found = columnAt(event); if (found && found.group.shown) goTo(found.group); });
  $("glance").addEventListener("mousemove", (event) => {
    const found = columnAt(event);
    const sent = found && found.bytes ? `, ${bytes(found.bytes)} communicated` : "";
    $("glance").title = found ? `${found.op.part} ${found.op.name}: ${flops(found.op.flops)}${sent}` : "";
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // ---------------------------------------------------------------- begin

  const groups = grouped(plan.ops);
  const sentFor = (op) => sum(op.boxing.filter(isSent).map((s) => s.bytes));
  const columns = groups.flatMap((group) => group.ops.map((op) => ({ op, group, bytes: sentFor(op) })));
  showSummary();
  showJobs();
  showNotes();
  showRanks();
  showBuckets();
  showVariables();
  const sections = showFlow(groups);
  addFilters();
  readAddress();
  apply();
  drawMesh();
})();
