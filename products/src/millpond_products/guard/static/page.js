// The page of the guard product: write a rule, try it on a message, submit a job.
// Data from the server is always shown as text, never as HTML.

const POLL = 1000; // milliseconds after the last answer
const TIMEOUT = 20000; // milliseconds for one request
const LAST_POLLS = 5; // after a job has ended
const FLOW = ["processing_inbound", "awaiting_response", "processing_outbound", "delivering", "completed"];
const ENDS = new Set(["completed", "failed", "expired", "inbound_blocked", "outbound_blocked"]);
const NATIVE = location.pathname.endsWith("/guard/") ? "../" : ""; // the path of the native API, relative to this page
const KEPT = "key:guard"; // the sessionStorage item of the key; the dashboard may have set it

const at = (id) => document.getElementById(id);
const state = { key: null, tenant: "", rules: [], job: null, watch: null, seen: 0, inbox: null };

// Requests

class Refusal extends Error {
  constructor(status, problem) {
    const place = problem.field ? `${problem.field}: ` : "";
    super(`${place}${problem.detail || `The server answered ${status}.`}${problem.hint ? ` ${problem.hint}` : ""}`);
    this.status = status;
    this.problem = problem;
  }
}

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${state.key}`, Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const whose = state.tenant ? `?tenant=${encodeURIComponent(state.tenant)}` : "";
  const answer = await fetch(`v1/${path}${whose}`, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(TIMEOUT), cache: "no-store", credentials: "omit",
  });
  const data = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, data);
  return data;
}

function made(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** Handle the submission of a form: disable its button meanwhile, and show an error in its place. */
function on(form, error, act) {
  at(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.submitter;
    at(error).textContent = "";
    if (button) button.disabled = true;
    try {
      await act();
    } catch (wrong) {
      at(error).textContent = wrong.message;
    } finally {
      if (button) button.disabled = false;
    }
  });
}

// The key

addEventListener("storage", ({ key, newValue }) => {
  // The dashboard stores a new key before this one expires.
  if (state.key && key === KEPT && newValue) state.key = JSON.parse(newValue).key;
});

async function enter() {
  await loadRules();
  sessionStorage.setItem(KEPT, JSON.stringify({ key: state.key, tenant: state.tenant }));
  at("key").hidden = true;
  at("workspace").hidden = at("sign-out").hidden = false;
  at("account").hidden = !state.tenant;
  at("account").textContent = state.tenant;
  await findInbox();
}

on("key", "key-error", async () => {
  [state.key, state.tenant] = [at("key-input").value.trim(), at("tenant-input").value.trim()];
  await enter();
  at("key-input").value = "";
});

at("sign-out").addEventListener("click", () => {
  sessionStorage.removeItem(KEPT);
  location.reload();
});

// Writing a rule

const lines = (id) => at(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
const given = (members) => Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value.length !== 0));

const PII = { email: "e-mail addresses", phone: "telephone numbers", iban: "IBANs", card: "card numbers", ip: "IP addresses" };

const FIELDS = {
  keywords: [["area", "f-words", "Words and phrases, one per line", "secret"]],
  pattern: [["text", "f-pattern", "Regular expression (RE2)", "\\border \\d{6}\\b"]],
  pii: Object.entries(PII).map(([label, what]) => ["check", `f-${label}`, what]),
  secrets: [],
  urls: [
    ["area", "f-deny", "Only these domains, one per line; empty: all domains", ""],
    ["area", "f-allow", "Except these domains", ""],
  ],
  length: [["number", "f-min", "Minimum number of characters", ""], ["number", "f-max", "Maximum number of characters", "4000"]],
  profanity: [["area", "f-extra", "Additional words, one per line", ""]],
};

const MATCHERS = {
  keywords: () => ({ words: lines("f-words") }),
  pattern: () => ({ pattern: at("f-pattern").value }),
  pii: () => ({ labels: Object.keys(PII).filter((label) => at(`f-${label}`).checked) }),
  secrets: () => ({}),
  urls: () => given({ deny: lines("f-deny"), allow: lines("f-allow") }),
  length: () => given({ min: number("f-min"), max: number("f-max") }),
  profanity: () => given({ extra: lines("f-extra") }),
};

function field([shape, id, what, value]) {
  const label = made("label", what, shape === "check" ? "check" : "");
  const input = made(shape === "area" ? "textarea" : "input");
  input.id = id;
  if (shape === "check") {
    Object.assign(input, { type: "checkbox", checked: true });
    label.prepend(input);
    return [label];
  }
  label.htmlFor = id;
  if (shape === "area") input.rows = 2;
  else input.type = shape;
  input.value = value;
  input.spellcheck = false;
  return [label, input];
}

function showFields() {
  const type = at("draft-type").value;
  at("draft-fields").replaceChildren(...FIELDS[type].flatMap(field));
  const cannot = type === "length";
  at("draft-action").querySelector("[value=redact]").disabled = cannot;
  if (cannot && at("draft-action").value === "redact") at("draft-action").value = "block";
}

function draft() {
  const type = at("draft-type").value;
  const name = at("draft-name").value.trim() || at("draft-type").selectedOptions[0].textContent;
  return {
    name, direction: at("draft-direction").value, action: at("draft-action").value, mode: at("draft-mode").value,
    matcher: { type, ...MATCHERS[type]() },
  };
}

at("draft-type").addEventListener("change", showFields);

on("draft", "draft-error", async () => {
  await ask("POST", "rules", draft());
  at("draft-name").value = "";
  at("trial-rules").value = "stored";
  await loadRules();
});

// The list of rules

const WAYS = { inbound: "messages from users", outbound: "responses of the model", both: "both directions" };

async function loadRules() {
  state.rules = (await ask("GET", "rules")).data;
  at("rules-none").hidden = state.rules.length > 0;
  at("rules").replaceChildren(...state.rules.map(ruleItem));
}

function ruleItem(rule, place) {
  const item = made("li");
  const what = made("div", undefined, "what");
  const mode = rule.mode === "monitor" ? ", monitor only" : "";
  what.append(made("strong", rule.name), made("small", `${rule.action} ${rule.matcher.type}, ${WAYS[rule.direction]}${mode}`));
  const up = act("↑", `Move ${rule.name} up`, () => move(place, -1));
  const down = act("↓", `Move ${rule.name} down`, () => move(place, 1));
  up.disabled = place === 0;
  down.disabled = place === state.rules.length - 1;
  item.append(what, up, down, act("Delete", `Delete ${rule.name}`, () => ask("DELETE", `rules/${rule.id}`)));
  return item;
}

function act(text, label, deed) {
  const button = made("button", text);
  button.type = "button";
  button.setAttribute("aria-label", label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    notice("");
    try {
      await deed();
    } catch (wrong) {
      notice(wrong.message);
    }
    await loadRules().catch((wrong) => notice(wrong.message));
  });
  return button;
}

function move(place, by) {
  const ids = state.rules.map((rule) => rule.id);
  [ids[place], ids[place + by]] = [ids[place + by], ids[place]];
  return ask("POST", "rules/reorder", { ids });
}

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text;
}

// Trying a message

on("trial", "trial-error", async () => {
  const text = at("trial-text").value;
  const body = { text, direction: at("trial-direction").value };
  if (at("trial-rules").value === "draft") body.rules = [{ ...draft(), direction: "both" }];
  const found = await ask("POST", "rules/dry-run", body);
  const parts = [outcome(found.outcome), marked(text, found.verdicts), verdictList(found.verdicts)];
  if (found.outcome === "passed" && found.text !== text) parts.push(made("p", "The filtered text:"), made("p", found.text, "shown"));
  at("trial-result").replaceChildren(...parts);
  at("trial-result").hidden = false;
});

function outcome(word) {
  return made("p", word === "passed" ? "✓ It passes." : "✕ It is blocked.", `outcome ${word}`);
}

const STRENGTH = { flag: 1, redact: 2, block: 3 };

/** The text with all findings marked. Positions count code points, and not UTF-16 units as JavaScript does. */
function marked(text, verdicts) {
  const letters = Array.from(text);
  const strongest = new Array(letters.length).fill(null);
  for (const verdict of verdicts) {
    if (verdict.start === null || verdict.start === undefined) continue;
    for (let place = verdict.start; place < Math.min(verdict.end, letters.length); place += 1) {
      const before = strongest[place];
      if (before === null || STRENGTH[verdict.action] > STRENGTH[before.action]) strongest[place] = verdict;
    }
  }
  const shown = made("p", undefined, "shown");
  let from = 0;
  for (let place = 1; place <= letters.length; place += 1) {
    if (place < letters.length && strongest[place] === strongest[from]) continue;
    const piece = letters.slice(from, place).join("");
    shown.append(strongest[from] ? mark(piece, strongest[from]) : document.createTextNode(piece));
    from = place;
  }
  return shown;
}

function mark(piece, verdict) {
  const element = made("mark", piece, verdict.mode === "monitor" ? "monitor" : verdict.action);
  element.title = verdict.name;
  return element;
}

function verdictList(verdicts) {
  if (!verdicts.length) return made("p", "No rule found anything.", "soft");
  const list = made("ul", undefined, "verdicts");
  for (const verdict of verdicts) {
    const place = verdict.start === null || verdict.start === undefined ? "" : `, characters ${verdict.start} to ${verdict.end}`;
    const mode = verdict.mode === "monitor" ? " (monitor only)" : "";
    const item = made("li");
    item.append(made("strong", verdict.name), ` ${verdict.action}s ${verdict.label || verdict.matcher}${mode}${place}`);
    list.append(item);
  }
  return list;
}

// Submitting a job

/** The development inbox, which keys of all tenants may read. */
function askInbox(query = "") {
  const headers = { Authorization: `Bearer ${state.key}` };
  return fetch(`${NATIVE}inbox.json${query}`, { headers, cache: "no-store", credentials: "omit" });
}

async function findInbox() {
  const answer = await askInbox().catch(() => null);
  if (!answer || !answer.ok) return;
  const inbox = await answer.json().catch(() => null);
  if (!inbox || inbox.last === undefined) return;
  const letters = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0"));
  state.inbox = `guard-${letters.join("")}`;
  state.seen = inbox.last;
  at("job-url").value = new URL(`${NATIVE}inbox/${state.inbox}`, location.href).href;
  at("job-inbox").hidden = false;
}

on("job", "job-error", async () => {
  const job = await ask("POST", "jobs", { message_input: at("job-text").value, webhook_url: at("job-url").value });
  state.job = job.job_id;
  at("work").hidden = false;
  at("work-id").textContent = job.job_id;
  at("hook-list").replaceChildren();
  at("hooks").hidden = true;
  showJob(job);
  at("work-title").focus();
  watch();
});

on("response", "response-error", async () => {
  await ask("POST", `jobs/${state.job}/response`, { message_output: at("response-text").value });
  await look();
});

/** Poll until the job has ended, and a little longer, because the last webhook may arrive after the end. */
function watch(left = LAST_POLLS) {
  clearTimeout(state.watch);
  state.watch = setTimeout(async () => {
    const isOver = await look().catch((wrong) => notice(wrong.message));
    if (!isOver || left > 1) watch(isOver ? left - 1 : LAST_POLLS);
  }, POLL);
}

async function look() {
  const job = await ask("GET", `jobs/${state.job}`);
  showJob(job);
  await showHooks();
  return ENDS.has(job.status);
}

function showJob(job) {
  const isGood = FLOW.includes(job.status);
  const path = isGood ? FLOW : [...FLOW.slice(0, reached(job)), job.status];
  const now = path.indexOf(job.status);
  at("steps").replaceChildren(...path.map((step, place) => {
    const word = place === now ? (isGood ? "now" : "bad") : place < now ? "done" : "";
    const item = made("li", step.replaceAll("_", " "), word);
    if (place === now) item.setAttribute("aria-current", "step");
    return item;
  }));
  at("response").hidden = job.status !== "awaiting_response";
  at("work-found").replaceChildren(...["inbound", "outbound"].filter((way) => job[way]).flatMap((way) => [
    made("h3", way === "inbound" ? "The message" : "The response"),
    outcome(job[way].outcome),
    ...(job[way].text === null ? [] : [made("p", job[way].text, "shown")]),
    verdictList(job[way].verdicts),
  ]));
}

/** How many steps a job had completed before it was blocked, failed or expired. */
function reached(job) {
  if (job.status === "inbound_blocked") return 1;
  if (job.status === "outbound_blocked") return 3;
  if (job.status === "failed") return 4;
  return job.outbound ? 4 : job.inbound ? 2 : 1;
}

async function showHooks() {
  if (!state.inbox) return;
  const answer = await askInbox(`?after=${state.seen}`);
  if (!answer.ok) return;
  const inbox = await answer.json();
  state.seen = inbox.last;
  for (const hook of inbox.data.reverse().filter((one) => one.name === state.inbox)) at("hook-list").append(hookItem(hook));
  at("hooks").hidden = !at("hook-list").children.length;
}

function hookItem(hook) {
  const item = made("li");
  const details = made("details");
  let body = hook.body;
  let event = "";
  try {
    const parsed = JSON.parse(body);
    event = parsed.event;
    body = JSON.stringify(parsed, null, 2);
  } catch {
    // not JSON: shown unchanged
  }
  const summary = made("summary", `${event} `);
  const isGood = hook.signature === "good";
  summary.append(made("span", isGood ? "✓ signature is valid" : `signature: ${hook.signature}`, isGood ? "good" : "bad"));
  details.append(summary, made("pre", body));
  item.append(details);
  return item;
}

// Start

showFields();
const kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}");
if (kept.key) {
  [state.key, state.tenant] = [kept.key, kept.tenant || ""];
  enter().catch((wrong) => {
    at("key").hidden = false;
    at("key-error").textContent = wrong.message;
  });
} else {
  at("key").hidden = false;
}
