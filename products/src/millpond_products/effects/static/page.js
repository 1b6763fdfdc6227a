// The page of the effects product: choose an effect, upload a file, follow the job, show the result.

const POLL = 2000; // milliseconds after the last answer
const TIMEOUT = 15000; // milliseconds for one request
const GUESS = 20; // seconds, if the effect was never used
const SHARES = [0.1, 0.3, 0.9, 1]; // the share of the whole at which each step ends
const ENDED = new Set(["completed", "failed", "canceled", "expired"]);
const KEPT = "key:effects"; // the sessionStorage item of the key; the dashboard may have set it

const at = (id) => document.getElementById(id);
const state = { key: null, effects: [], video: null, since: 0, timer: null, ticker: null, upload: null, order: null };

// Requests

class Refusal extends Error {
  constructor(status, problem) {
    super(problem.message || problem.detail || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${state.key}`, Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(`api/${path}`, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(TIMEOUT), cache: "no-store", credentials: "omit",
  });
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, data);
  return data;
}

function put(upload, file, onShare) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(upload.method, upload.url);
    for (const [name, value] of Object.entries(upload.headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onShare(event.loaded / event.total));
    request.addEventListener("load", () => (request.status < 300 ? resolve() : reject(new Error(uploadError(request)))));
    request.addEventListener("error", () => reject(new Error("The upload was interrupted. Check your connection and try again.")));
    request.addEventListener("abort", () => reject(new DOMException("Canceled", "AbortError")));
    request.addEventListener("loadend", () => (state.upload = null));
    state.upload = request;
    request.send(file);
  });
}

function uploadError(request) {
  try {
    return JSON.parse(request.responseText).detail;
  } catch {
    return `The upload was refused (${request.status}).`;
  }
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// Display

const VIEWS = ["key", "order", "work", "result", "failure"];

function show(view, focus) {
  for (const id of VIEWS) at(id).hidden = id !== view;
  if (focus) at(focus).focus();
}

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text || "";
}

function announce(text) {
  if (at("announcement").textContent !== text) at("announcement").textContent = text;
}

async function showWallet() {
  try {
    const wallet = await ask("GET", "wallet");
    at("balance").textContent = wallet.balance.toLocaleString();
    at("wallet").hidden = false;
  } catch {
    // The balance is not needed for anything else.
  }
}

// The key

addEventListener("storage", ({ key, newValue }) => {
  // The dashboard stores a new key before this one expires.
  if (state.key && key === KEPT && newValue) state.key = JSON.parse(newValue).key;
});

async function enter(key) {
  state.key = key;
  const { data } = await ask("GET", "effects");
  sessionStorage.setItem(KEPT, JSON.stringify({ key }));
  state.effects = data;
  at("sign-out").hidden = false;
  listEffects();
  await showWallet();
}

function askForKey(error) {
  sessionStorage.removeItem(KEPT);
  at("wallet").hidden = at("sign-out").hidden = true;
  at("key-error").textContent = error || "";
  at("key-input").value = "";
  show("key", "key-input");
}

at("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter;
  button.disabled = true;
  try {
    await enter(at("key-input").value.trim());
    resume();
  } catch (error) {
    at("key-error").textContent = error instanceof Refusal ? error.message : "The server cannot be reached.";
    at("key-input").focus();
  } finally {
    button.disabled = false;
  }
});

at("sign-out").addEventListener("click", () => {
  stop();
  sessionStorage.removeItem("video");
  notice("");
  askForKey();
});

// Effects and their properties

function listEffects() {
  const cards = state.effects.map((effect, place) => {
    const card = at("effect-card").content.cloneNode(true);
    const input = card.querySelector("input");
    input.value = effect.slug;
    input.checked = place === 0;
    card.querySelector(".name").textContent = effect.name;
    card.querySelector(".cost").textContent = price(effect.credits_cost);
    card.querySelector(".text").textContent = effect.description || "";
    return card;
  });
  if (!cards.length) cards.push("There are no effects yet.");
  at("effects").replaceChildren(...cards);
  chosen();
}

const price = (count) => (count === 1 ? "1 token" : `${count} tokens`);

function effect() {
  const slug = new FormData(at("order")).get("effect");
  return state.effects.find((each) => each.slug === slug);
}

function chosen() {
  const picked = effect();
  at("properties").replaceChildren(...(picked ? picked.properties.map(field) : []));
  const type = picked ? picked.input_type : "any";
  at("file").accept = type === "any" ? "image/*,video/*" : `${type}/*`;
  at("drop-hint").textContent = { any: "An image or a video", image: "An image", video: "A video" }[type];
  check();
}

function field(property) {
  const box = document.createElement("div");
  const label = document.createElement("label");
  const input = control(property);
  input.id = `property-${property.name}`;
  input.name = `property-${property.name}`;
  input.required = property.required && property.default == null;
  label.htmlFor = input.id;
  label.textContent = property.label || property.name;
  box.append(label, input);
  if (property.description) {
    const more = document.createElement("small");
    more.id = `${input.id}-more`;
    more.textContent = property.description;
    input.setAttribute("aria-describedby", more.id);
    box.append(more);
  }
  return box;
}

function control(property) {
  if (property.type === "choice") {
    const select = document.createElement("select");
    select.append(...property.choices.map((choice) => new Option(choice, choice, false, choice === property.default)));
    return select;
  }
  const input = document.createElement(property.type === "text" ? "textarea" : "input");
  if (property.type === "text") {
    input.rows = 2;
    if (property.max_length) input.maxLength = property.max_length;
  } else if (property.type === "number") {
    input.type = "number";
    input.step = property.integer ? "1" : "any";
    if (property.min != null) input.min = property.min;
    if (property.max != null) input.max = property.max;
  } else {
    input.type = "file";
    input.accept = `${property.type}/*`;
  }
  if (property.default != null && input.type !== "file") input.value = property.default;
  return input;
}

async function values(picked) {
  const made = {};
  for (const property of picked.properties) {
    const input = at(`property-${property.name}`);
    if (input.type === "file") {
      if (input.files.length) made[property.name] = (await send(input.files[0], () => {})).id;
    } else if (property.type === "number") {
      if (input.value !== "") made[property.name] = Number(input.value);
    } else if (input.value !== "" || property.default) {
      made[property.name] = input.value;
    }
  }
  return made;
}

at("effects").addEventListener("change", chosen);

// The file

function files(list) {
  const transfer = new DataTransfer();
  if (list.length) transfer.items.add(list[0]);
  at("file").files = transfer.files;
  picked();
}

function picked() {
  const file = at("file").files[0];
  at("drop").classList.toggle("full", Boolean(file));
  at("drop-text").textContent = file ? `${file.name} (${size(file.size)})` : "Drop a file here or choose one";
  const old = at("preview").firstChild;
  if (old) URL.revokeObjectURL(old.src);
  at("preview").hidden = !file;
  at("preview").replaceChildren(...(file ? [media(URL.createObjectURL(file), file.type, "")] : []));
  check();
}

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${bytes.toLocaleString(undefined, { maximumFractionDigits: unit ? 1 : 0 })} ${units[unit]}`;
}

function media(url, type, text) {
  const made = document.createElement((type || "").startsWith("video/") ? "video" : "img");
  if (made.tagName === "VIDEO") {
    made.controls = made.playsInline = made.loop = made.muted = true;
    made.setAttribute("aria-label", text);
  } else {
    made.alt = text;
  }
  made.src = url;
  return made;
}

function check() {
  const file = at("file").files[0];
  const type = effect() ? effect().input_type : "any";
  const fits = !file || (type === "any" ? /^(image|video)\//.test(file.type) : file.type.startsWith(`${type}/`));
  at("order-error").textContent = fits ? "" : `${file.name} is not ${type === "any" ? "an image or a video" : `of type ${type}`}.`;
  at("start").disabled = !file || !fits || !effect();
}

at("file").addEventListener("change", picked);
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => event.relatedTarget || at("drop").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  if (!at("order").hidden && event.dataTransfer.files.length) files(event.dataTransfer.files);
});

// Submitting

// The characters of a name as the server accepts them: control characters and lone surrogates are replaced.
function letters(name) {
  return Array.from(name, (letter) => (/[\u0000-\u001f\u007f-\u009f\ud800-\udfff]/.test(letter) && letter.length === 1 ? "_" : letter));
}

async function send(file, onShare) {
  const about = { filename: letters(file.name).slice(-200).join("") || "file", mime_type: file.type, size: file.size };
  const made = await ask("POST", "videos/uploads", about);
  await put(made.upload, file, onShare);
  return made.file;
}

at("order").addEventListener("submit", async (event) => {
  event.preventDefault();
  const picked = effect();
  const file = at("file").files[0];
  at("order-error").textContent = "";
  begin(file.name);
  at("uploading").hidden = false;
  announce("Uploading");
  try {
    const input = await values(picked);
    const sent = await send(file, uploaded);
    uploaded(1);
    const video = await ask("POST", "videos", { original_file_id: sent.id, title: letters(file.name).slice(0, 200).join("") || "file" });
    const job = await ask("POST", "ai-jobs", { effect_id: picked.id, video_id: video.id, idempotency_key: newKey(), input });
    state.order = job.id;
    at("cancel").disabled = false;
    showWallet();
    watch(video.id);
  } catch (error) {
    show("order", "start");
    if (error instanceof Refusal && error.status === 401) askForKey(error.message);
    else if (error.name !== "AbortError") at("order-error").textContent = words(error);
  } finally {
    state.upload = null;
  }
});

function words(error) {
  if (!(error instanceof Refusal)) return error instanceof TypeError ? "The server cannot be reached." : error.message;
  const more = error.problem.required_tokens === undefined ? "" : ` It costs ${price(error.problem.required_tokens)}.`;
  return `${error.message}${more}`;
}

function uploaded(share) {
  at("upload-bar").value = share;
  at("upload-share").textContent = `${Math.round(share * 100)} %`;
}

function begin(name) {
  notice("");
  uploaded(0);
  at("work-file").textContent = name || "";
  at("estimate").textContent = "";
  at("cancel").disabled = false;
  state.order = null;
  draw(-1);
  show("work", "work-title");
}

at("cancel").addEventListener("click", async () => {
  if (state.upload) {
    state.upload.abort();
    return;
  }
  at("cancel").disabled = true;
  if (!state.order) return; // the job is being created; it can be canceled afterwards
  try {
    await ask("POST", `ai-jobs/${state.order}/cancel`);
    notice("The job is being canceled.");
  } catch (error) {
    notice(words(error));
    at("cancel").disabled = false;
  }
});

// Following the job

function watch(video) {
  sessionStorage.setItem("video", video);
  state.video = video;
  state.since = performance.now();
  state.seconds = GUESS;
  state.running = false;
  at("uploading").hidden = true;
  clearInterval(state.ticker);
  state.ticker = setInterval(tick, 200);
  tick();
  poll(video);
}

async function poll(video) {
  let found;
  try {
    found = await ask("GET", `videos/${video}`);
    notice("");
  } catch (error) {
    if (state.video !== video) return;
    if (error instanceof Refusal && error.status === 401) return askForKey(error.message);
    if (error instanceof Refusal && error.status === 404) return failed("The video no longer exists.", "");
    notice("The server cannot be reached. Trying again…");
  }
  if (state.video !== video) return;
  if (found) seen(found);
  if (!found || !ENDED.has(found.status)) state.timer = setTimeout(poll, POLL, video);
}

function seen(video) {
  state.order = video.ai_job_id;
  at("work-file").textContent = video.title || at("work-file").textContent;
  if (video.status === "processing" && !state.running) {
    state.running = true;
    state.since = performance.now();
  }
  if (video.status === "queued") state.running = false;
  if (video.estimated_seconds) {
    state.seconds = Math.max(video.estimated_seconds, 1);
    at("estimate").textContent = `It usually takes about ${span(state.seconds)}.`;
  }
  state.progress = video.progress;
  if (video.status === "completed") completed(video);
  else if (video.status === "failed" || video.status === "expired") failed(video.error);
  else if (video.status === "canceled") failed("It was canceled.");
}

function span(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} seconds`;
  return `${Math.round(seconds / 60)} minutes`;
}

// The steps advance by the estimated duration; only the end of the job completes the last one.
function tick() {
  if (!state.running) {
    draw(SHARES[0] * 0.6);
    announce("Queued");
    return;
  }
  const passed = (performance.now() - state.since) / 1000 / state.seconds;
  const guessed = SHARES[0] + (1 - SHARES[0]) * Math.min(passed, 1) * 0.97;
  draw(Math.min(Math.max(guessed, SHARES[0] + (1 - SHARES[0]) * (state.progress || 0)), 0.98));
}

function draw(share) {
  let from = 0;
  Array.from(at("steps").children).forEach((step, place) => {
    const part = Math.min(Math.max((share - from) / (SHARES[place] - from), 0), 1);
    step.className = part >= 1 ? "done" : share >= from ? "now" : "";
    if (step.className === "now" && state.running) announce(step.querySelector(".what").textContent);
    step.querySelector("progress").value = part;
    from = SHARES[place];
  });
}

function stop() {
  clearTimeout(state.timer);
  clearInterval(state.ticker);
  state.video = state.timer = state.ticker = null;
}

function completed(video) {
  stop();
  draw(1);
  const name = video.title ? `${video.title}, with the effect` : "The result";
  at("shown").replaceChildren(media(video.processed_file_url, video.processed_mime_type, name));
  at("download").href = video.processed_file_url;
  at("download").target = "_blank";
  at("download").rel = "noopener noreferrer";
  show("result", "result-title");
  showWallet();
}

function failed(text, tokens = "Your tokens were returned.") {
  stop();
  at("failure-text").textContent = text || "Processing failed.";
  at("failure-tokens").textContent = tokens;
  show("failure", "failure-title");
  showWallet();
}

for (const button of document.querySelectorAll(".another")) {
  button.addEventListener("click", () => {
    stop();
    sessionStorage.removeItem("video");
    notice("");
    files([]);
    show("order", "file");
  });
}

function resume() {
  const video = sessionStorage.getItem("video");
  if (!video) return show("order");
  begin("");
  watch(video);
}

// Start. A key may be in the fragment of the URL, which is not sent to the server; it is removed from the address.

const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) history.replaceState(null, "", location.pathname);
const key = given || JSON.parse(sessionStorage.getItem(KEPT) || "{}").key;
if (key) enter(key).then(resume, (error) => askForKey(words(error)));
else askForKey();
