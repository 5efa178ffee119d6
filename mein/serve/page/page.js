// The page: asks /explain about a text and /label about a file. Text reaches the document as textContent only.
"use strict";

const by = (id) => document.getElementById(id);
const make = (name, text = "", className = "") => {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
};
const SHOWN_LABELS = 8;
const STEPS = 5; // depths of color
const FRAGMENTS = 12;

const state = { answer: null, window: "all", side: "both", areAllShown: false, download: null };

// ---- asking ----

async function ask(path, options) {
  const token = by("token").value.trim();
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, method: "POST" });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (response.ok) return response;
  if (response.status === 401) {
    by("token-row").hidden = false;
    by("token").focus();
  }
  let sentence = `The server answered ${response.status}.`;
  try {
    sentence = (await response.json()).error || sentence;
  } catch { /* no JSON came: the status must do */ }
  throw new Error(sentence);
}

async function classify(label = null) {
  by("problem").hidden = true;
  by("go").disabled = true;
  try {
    const body = { text: by("text").value, top: 1000, ...(label === null ? {} : { label }) };
    const response = await ask("explain", {
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
    });
    state.answer = await response.json();
    state.side = "both";
    showAnswer();
  } catch (problem) {
    state.answer = null;
    by("result").hidden = by("why").hidden = true;
    complain("problem", problem);
  } finally {
    by("go").disabled = false;
  }
}

function complain(id, problem) {
  by(id).textContent = problem.message;
  by(id).hidden = false;
}

// ---- showing ----

const percent = (value) => `${(100 * value).toFixed(value > 0.9995 || value < 0.0005 ? 2 : 1)}%`;
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
const reach = (window) => 2 * Number(window) + 1;
const PARTS = { expert: "expert", encoder: "encoder", lexicon: "lexicon" };

function showAnswer() {
  const { answer } = state;
  const ranked = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
  by("label").textContent = ranked[0][0];
  by("certainty").textContent = answer.is_empty
    ? "No known word: the shares of the labels in training."
    : `with ${percent(ranked[0][1])} probability`;
  showProbabilities(ranked);
  showSwitches(ranked);
  showWhy();
  by("result").hidden = by("why").hidden = false;
}

function showProbabilities(ranked) {
  const shown = state.areAllShown ? ranked : ranked.slice(0, SHOWN_LABELS);
  by("probabilities").replaceChildren(...shown.map(([name, value]) => {
    const row = make("li");
    const title = make("span", name, "name");
    title.dir = "auto";
    title.title = name;
    const bar = make("span", "", "bar");
    const filled = make("span");
    filled.style.width = `${100 * value}%`;
    bar.append(filled);
    row.append(title, bar, make("span", percent(value), "value"));
    return row;
  }));
  by("all-labels").hidden = state.areAllShown || ranked.length <= SHOWN_LABELS;
  by("all-labels").textContent = `Show all ${ranked.length} labels`;
}

function choices(id, entries, chosen, choose) {
  by(id).querySelector(".choices").replaceChildren(...entries.map(([value, text]) => {
    const label = make("label");
    const input = make("input");
    input.type = "radio";
    input.name = id;
    input.value = value;
    input.checked = value === chosen;
    input.addEventListener("change", () => { choose(value); showWhy(); });
    const shown = make("span", text);
    shown.dir = "auto";
    label.append(input, shown);
    return label;
  }));
}

function showSwitches(ranked) {
  const { answer } = state;
  const windows = Object.keys(answer.shares);
  if (!windows.includes(state.window)) state.window = "all";
  choices("windows", [["all", "All"], ...windows.map((w) => [w, PARTS[w] || String(reach(w))])], state.window,
    (value) => { state.window = value; });
  choices("sides", [["both", "Both"], ["for", String(answer.label)], ["against", String(answer.alternative)]],
    state.side, (value) => { state.side = value; });
  by("versus-row").hidden = ranked.length < 3;
  by("versus").replaceChildren(...ranked.map(([name]) => {
    const option = make("option", name);
    option.value = name;
    option.selected = name === String(answer.label);
    return option;
  }));
}

// Contribution of each word, in the chosen window or in all of them.
function wordShares() {
  const { shares, segments } = state.answer;
  const total = new Float64Array((segments.length - 1) / 2);
  for (const [window, values] of Object.entries(shares)) {
    if (state.window === "all" || state.window === window) values.forEach((v, i) => { total[i] += v; });
  }
  return total;
}

function showWhy() {
  const { answer } = state;
  const hasParts = !answer.is_empty && Object.keys(answer.shares).length > 0;
  by("no-parts").hidden = hasParts;
  by("no-parts").textContent = answer.is_empty
    ? "The model knows no word of this text."
    : "No fragment contributed: the expert is no sum of words, and no gate is open.";
  by("legend").hidden = by("strongest").hidden = by("sum").hidden = !hasParts;
  by("windows").hidden = by("sides").hidden = !hasParts;
  showMarked();
  showLegend();
  showFragments();
  showParts();
}

function showMarked() {
  const { segments } = state.answer;
  const shares = wordShares();
  const strongest = shares.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const parts = document.createDocumentFragment();
  segments.forEach((segment, place) => {
    const share = place % 2 ? shares[(place - 1) / 2] : 0;
    const isFor = share > 0;
    const isWanted = state.side === "both" || (state.side === "for") === isFor;
    const depth = strongest && isWanted ? Math.round(STEPS * Math.abs(share) / strongest) : 0;
    if (!depth) {
      parts.append(segment);
      return;
    }
    const mark = make("mark", segment, `${isFor ? "f" : "a"}${depth}`);
    mark.title = `${signed(share)} for ${isFor ? state.answer.label : state.answer.alternative}`;
    parts.append(mark);
  });
  by("marked").replaceChildren(parts);
  by("marked").hidden = segments.join("") === "";
}

function showLegend() {
  const entries = [["for", state.answer.label], ["against", state.answer.alternative]];
  by("legend").replaceChildren(...entries.map(([side, label]) => {
    const entry = make("span");
    const name = make("bdi", `evidence for ${label}`);
    entry.append(make("i", "", `swatch ${side}`), name);
    return entry;
  }));
}

function showFragments() {
  const { fragments, label, alternative } = state.answer;
  const wanted = fragments.filter((f) => (state.window === "all" || String(f.window ?? f.source) === state.window)
    && (state.side === "both" || (state.side === "for") === (f.contribution > 0)));
  by("fragments").replaceChildren(...wanted.slice(0, FRAGMENTS).map((f) => {
    const row = make("tr");
    const text = make("td", f.times > 1 ? `${f.text} (${f.times} times)` : f.text);
    text.dir = "auto";
    const name = make("td", String(f.contribution > 0 ? label : alternative));
    name.dir = "auto";
    name.className = "for";
    row.append(make("td", signed(f.contribution), "number"), name, text);
    return row;
  }));
}

function showParts() {
  const { expert, encoder, rest, lexicon, imitators, log_odds: logOdds, label, alternative } = state.answer;
  const constant = rest.expert || 0;
  const ofExpert = "expert" in state.answer.shares
    ? [["expert, its words and pairs", expert - encoder - constant],
      ...(encoder ? [["expert, what its encoder reads", encoder]] : []), ["expert, its constant", constant]]
    : [["expert, on all of the text", expert]];
  const rows = [...ofExpert,
    ...(lexicon ? [["lexicon (n-gram log-odds)", lexicon]] : []),
    ...Object.entries(imitators).map(([w, value]) => [`imitator that sees ${reach(w)} pieces`, value])];
  const made = [...rows, [`log-odds of ${label} before ${alternative}`, logOdds]].map(([name, value]) => {
    const row = make("tr");
    row.append(make("td", signed(value), "number"), make("td", name));
    return row;
  });
  made[made.length - 1].className = "total";
  by("parts").replaceChildren(...made);
}

// ---- files ----

async function labelFile(file) {
  by("file-problem").hidden = true;
  if (state.download) URL.revokeObjectURL(state.download);
  state.download = null;
  by("file-state").textContent = `Labeling ${file.name} …`;
  try {
    const response = await ask("label", { body: file, headers: { "Content-Type": "text/csv" } });
    const rows = Number(response.headers.get("x-rows"));
    state.download = URL.createObjectURL(await response.blob());
    const link = make("a", `Save ${labeledName(file.name)}`);
    link.href = state.download;
    link.download = labeledName(file.name);
    by("file-state").replaceChildren(`${rows.toLocaleString("en")} rows labeled. `, link);
    link.focus();
  } catch (problem) {
    by("file-state").textContent = "";
    complain("file-problem", problem);
  }
}

const labeledName = (name) => `${name.replace(/\.csv$/i, "")}.labeled.csv`;

// ---- wiring ----

function count() {
  const length = [...by("text").value].length;
  by("count").textContent = length ? `${length.toLocaleString("en")} characters` : "";
}

document.addEventListener("DOMContentLoaded", () => {
  by("ask").addEventListener("submit", (event) => { event.preventDefault(); classify(); });
  by("text").addEventListener("input", count);
  by("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); classify(); }
  });
  by("versus").addEventListener("change", (event) => classify(event.target.value));
  by("all-labels").addEventListener("click", () => { state.areAllShown = true; showAnswer(); });
  by("file").addEventListener("change", (event) => {
    if (event.target.files.length) labelFile(event.target.files[0]);
    event.target.value = "";
  });
  const drop = by("drop");
  const over = (isOver) => (event) => { event.preventDefault(); drop.classList.toggle("over", isOver); };
  drop.addEventListener("dragover", over(true));
  drop.addEventListener("dragleave", over(false));
  drop.addEventListener("drop", (event) => {
    over(false)(event);
    if (event.dataTransfer.files.length) labelFile(event.dataTransfer.files[0]);
  });
  for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
  count();
});
