// The playground of the studio product: makes an ad from the page of a product.

const POLL = 1000; // milliseconds between a response and the next poll
const TIMEOUT = 20000; // milliseconds for one response
const TRIES = 30; // polls in a row that may fail
const ENDED = new Set(["completed", "failed", "canceled", "expired"]);
const COSTS = { scrape: 1, copy: 1, static_ad: 5, tts: 2, ugc_video: 20 };
const PATHS = { scrape: "scrape", copy: "copy", static_ad: "static-ad", tts: "tts", ugc_video: "video" };
const TITLES = { scrape: "Facts", copy: "Copy", static_ad: "Picture", tts: "Voice", ugc_video: "Film" };
const KEPT = "key:studio"; // the tab's session storage item with the key; the dashboard may have set it

const at = (id) => document.getElementById(id);
const state = { key: null, run: 0 };

// Requests

class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || `The server answered ${status}.`);
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
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, content);
  return content;
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

// Display

const VIEWS = ["key", "order", "board"];

function show(view, focus) {
  for (const id of VIEWS) at(id).hidden = id !== view;
  if (focus) at(focus).focus();
}

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text || "";
}

function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function showBalance(credits) {
  at("balance").textContent = credits.toLocaleString();
  at("wallet").hidden = false;
}

async function refreshBalance() {
  try {
    showBalance((await ask("GET", "credits?limit=1")).balance);
  } catch {
    // The balance is only shown; nothing depends on it.
  }
}

// The key

addEventListener("storage", ({ key, newValue }) => {
  // The dashboard replaces the key before it expires.
  if (state.key && key === KEPT && newValue) state.key = JSON.parse(newValue).key;
});

async function enter(key) {
  state.key = key;
  showBalance((await ask("GET", "credits?limit=1")).balance);
  sessionStorage.setItem(KEPT, JSON.stringify({ key }));
  at("sign-out").hidden = false;
  show("order", "url");
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
  } catch (error) {
    at("key-error").textContent = error instanceof Refusal ? error.message : "The server cannot be reached.";
    at("key-input").focus();
  } finally {
    button.disabled = false;
  }
});

at("sign-out").addEventListener("click", () => {
  state.run += 1;
  notice("");
  askForKey();
});

// The order

const wished = () => new Set(Array.from(document.querySelectorAll("[name=make]:checked"), (box) => box.value));

function total() {
  return COSTS.scrape + COSTS.copy + Array.from(wished()).reduce((sum, type) => sum + COSTS[type], 0);
}

function showTotal() {
  at("start").textContent = `Make it for ${total()} credits`;
}

at("order").addEventListener("change", showTotal);
at("use-sample").addEventListener("click", () => {
  at("url").value = new URL("sample", location.href).href;
  at("url").focus();
});
at("another").addEventListener("click", () => {
  state.run += 1;
  notice("");
  show("order", "url");
});

at("order").addEventListener("submit", (event) => {
  event.preventDefault();
  notice("");
  state.run += 1;
  makeAd(state.run, { url: at("url").value.trim(), tone: at("tone").value, style: at("style").value, shape: at("shape").value, made: wished() });
});

// The run: each job waits for those that it needs; independent jobs run in parallel

async function makeAd(run, wish) {
  const cards = Object.fromEntries(["scrape", "copy", ...wish.made].map((type) => [type, newCard(type)]));
  at("cards").replaceChildren(...Object.values(cards).map((card) => card.node));
  show("board", "board-title");
  const page = await runJob(run, cards.scrape, { url: wish.url });
  if (!page) return giveUp(cards);
  const copy = await runJob(run, cards.copy, { product_id: page.id, tone: wish.tone });
  if (!copy) return giveUp(cards);
  const both = { product_id: page.id, copy_id: copy.id, style: wish.style };
  const bodies = {
    static_ad: { ...both, aspect_ratio: wish.shape },
    tts: { copy_id: copy.id },
    ugc_video: { ...both, aspect_ratio: wish.shape },
  };
  await Promise.all(Array.from(wish.made, (type) => runJob(run, cards[type], bodies[type])));
}

function giveUp(cards) {
  for (const card of Object.values(cards)) if (!card.job) card.setStatus("not started", "waiting");
}

async function runJob(run, card, body) {
  try {
    const accepted = await ask("POST", `generate/${PATHS[card.type]}`, { ...body, idempotency_key: newKey() });
    showBalance(accepted.credits_remaining);
    return await watch(run, card, accepted.job_id);
  } catch (error) {
    if (run === state.run) card.refuse(error);
    return null;
  }
}

async function watch(run, card, id) {
  for (let failures = 0; run === state.run; ) {
    try {
      const job = await ask("GET", `jobs/${id}`);
      failures = 0;
      card.show(job);
      if (ENDED.has(job.status)) {
        await refreshBalance();
        return job.status === "completed" ? job : null;
      }
    } catch (error) {
      if ((error instanceof Refusal && error.status < 500 && error.status !== 429) || ++failures > TRIES) throw error;
    }
    await pause(POLL);
  }
  return null;
}

// Cards

function newCard(type) {
  const node = at("card").content.cloneNode(true).firstElementChild;
  const part = (selector) => node.querySelector(selector);
  node.dataset.type = type;
  part("h3").textContent = TITLES[type];
  part(".cost").textContent = COSTS[type];
  const card = {
    type, node, job: null,
    setStatus(text, status) {
      part(".status").textContent = text;
      part(".status").className = `status ${status}`;
      part("progress").hidden = ENDED.has(status) || status === "waiting";
    },
    show(job) {
      const isNews = !card.job || card.job.status !== job.status;
      card.job = job;
      if (!isNews) return;
      card.setStatus(job.status, job.status);
      part(".cancel").hidden = ENDED.has(job.status);
      if (job.status === "completed") part(".content").replaceChildren(...RENDER[type](job.output));
      if (job.error) card.showError(job.error);
      at("announcement").textContent = `${TITLES[type]}: ${job.status}`;
    },
    showError(text) {
      part(".error").textContent = text;
      part(".error").hidden = false;
    },
    refuse(error) {
      card.setStatus("refused", "failed");
      part("progress").hidden = true;
      part(".cancel").hidden = true;
      if (error instanceof Refusal && error.problem.code === "insufficient_credits") {
        card.showError(`It costs ${error.problem.required} credits, and you have ${error.problem.balance}.`);
      } else {
        card.showError(error instanceof Refusal ? error.message : "The server cannot be reached.");
      }
      if (error.status === 401) askForKey(error.message);
    },
  };
  card.setStatus("waiting", "waiting");
  part(".cancel").addEventListener("click", async () => {
    part(".cancel").disabled = true;
    try {
      card.show(await ask("POST", `jobs/${card.job.id}/cancel`));
    } catch {
      // The job has ended meanwhile: the next poll shows how.
    }
  });
  return card;
}

function facts(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) if (value) list.append(make("dt", name), make("dd", value));
  return list;
}

function file(output) {
  const { url, size } = output.files[0];
  const link = make("a", `Open the file (${Math.max(1, Math.round(size / 1024)).toLocaleString()} kB)`, "file");
  link.href = url;
  link.target = "_blank";
  link.rel = "noopener";
  return { url, link };
}

function media(tag, output) {
  const { url, link } = file(output);
  const node = make(tag);
  node.controls = true;
  node.preload = "metadata";
  node.src = url;
  if (tag === "video") showMiddle(node);
  return [node, link];
}

// The first frame of a video shows little: until it plays, a later frame is shown.
function showMiddle(video) {
  video.addEventListener("loadedmetadata", () => (video.currentTime = video.duration / 3), { once: true });
  video.addEventListener("play", () => (video.currentTime = 0), { once: true });
}

const RENDER = {
  scrape(page) {
    const image = page.images.find((url) => new URL(url).origin === location.origin);
    const shown = make("img");
    if (image) {
      shown.src = image;
      shown.alt = "";
    }
    const price = [page.price, page.currency].filter(Boolean).join(" ");
    const rating = page.rating ? `${page.rating} of 5${page.reviews ? ` (${page.reviews.toLocaleString()})` : ""}` : "";
    const list = facts([["Product", page.title], ["Brand", page.brand], ["Price", price], ["Rating", rating], ["About", page.description.slice(0, 240)]]);
    return image ? [shown, list] : [list];
  },
  copy(copy) {
    return [make("blockquote", copy.headlines[0]), make("p", copy.body), make("p", copy.hashtags.join(" "), "tags"),
      facts([["Button", copy.call_to_action], ["Script", copy.script]])];
  },
  static_ad(output) {
    const { url, link } = file(output);
    const image = make("img");
    image.src = url;
    image.alt = "The ad";
    return [image, link];
  },
  tts: (output) => media("audio", output),
  ugc_video: (output) => media("video", output),
};

// Start

showTotal();
at("url").value = new URL("sample", location.href).href;
const kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}").key;
if (kept) {
  enter(kept).catch((error) => askForKey(error instanceof Refusal ? error.message : "The server cannot be reached."));
} else {
  askForKey();
}
