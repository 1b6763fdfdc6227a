// One job: where it is, what it cost, what happened to it, and what can be done. It is watched as it goes.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { act, get, refusal } from "../api";
import { useEvents, useLoaded } from "../live";
import {
  Ago,
  Badge,
  Button,
  Copy,
  Credits,
  Empty,
  Fact,
  Facts,
  Id,
  Moment,
  Page,
  Panel,
  Progress,
  Show,
  Skeleton,
  StateBadge,
  Tabs,
} from "../parts/basics";
import { Diagram } from "../parts/diagram";
import { isAsking } from "../parts/dialogs";
import { Json } from "../parts/json";
import { Media } from "../parts/media";
import { asCurl, asPython } from "../parts/snippets";
import { Table } from "../parts/table";
import { Timeline } from "../parts/timeline";
import { attempt, toast } from "../parts/toasts";
import { Link, part, place, setQuery } from "../router";
import type { Artifact, Dossier, Entry, Events, Job, Event as JobEvent } from "../wire";
import { between, clock, credits, number, plain, plural, shortId, span } from "../words";
import { actsOn, type Does, isRefund, type JobActs, refunded } from "./job-acts";
import "./job.css";

/** How many of the last events are read when the page opens; the earlier ones when they are asked for. */
const EVENTS = 500;
/** How many are kept: a job that talks for hours must not fill the memory of whoever watches it. */
const EVENTS_MAX = 5_000;
const SOON = 120;

export function JobPage({ id }: { id: string }) {
  const of = place.value.query.get("of");
  const found = useLoaded((signal) => get<Dossier>(`board/jobs/${part(id)}`, { tenant: of }, signal), [id, of]);
  const dossier = found.value;
  return dossier ? (
    <Shown key={id} dossier={dossier} reload={found.reload} stale={found.problem?.message ?? null} />
  ) : (
    <Page title="Job" aside={<Id id={id} whole />}>
      <Show of={found} lines={8}>
        {() => null}
      </Show>
    </Page>
  );
}

function Shown({ dossier, reload, stale }: { dossier: Dossier; reload: () => void; stale: string | null }) {
  const [live, setLive] = useState<Partial<Job>>({});
  const again = useSoon(reload);
  const story = useStory(dossier.job);
  const isNewer = (live.events ?? 0) > dossier.job.events;
  const job: Job = isNewer ? { ...dossier.job, ...live } : dossier.job;
  const hear = (event: JobEvent) => {
    story.add([event]);
    setLive((before) => ({ ...before, ...moved(event), events: event.seq }));
    if (event.type !== "log" && event.type !== "progress") again();
  };
  const acts = actsOn({ job, dossier, reload });
  return (
    <Page
      title={job.kind}
      tab={`${plain(job.state)} ${job.kind} ${shortId(job.id)}`}
      aside={<Headline job={job} />}
      acts={<Acts job={job} acts={acts} />}
    >
      {story.last !== null && <Follow key={job.run} job={job} after={story.last} told={hear} />}
      {stale && <p class="stale">Not fresh: {stale}</p>}
      <Trouble dossier={dossier} job={job} acts={acts} />
      <Panel title="Timeline" aside={dossier.events_left_out > 0 && <LeftOut events={dossier.events_left_out} />}>
        <Timeline spans={dossier.spans} isOver={job.outcome !== null} />
      </Panel>
      <div class="job-body">
        <div>
          <Panel>
            <Parts dossier={dossier} job={job} story={story} reload={reload} />
          </Panel>
          <Money dossier={dossier} job={job} />
        </div>
        <div class="job-side">
          <Side dossier={dossier} job={job} />
        </div>
      </div>
      {dossier.lifecycle && (
        <Panel title="Lifecycle" aside={<Link to={`/kinds/${part(job.kind)}`}>The kind {job.kind}</Link>}>
          <Diagram lifecycle={dossier.lifecycle} at={job.state} passed={passed(story.events)} />
        </Panel>
      )}
    </Page>
  );
}

function LeftOut({ events }: { events: number }) {
  return <span class="soft">Drawn without {plural(events, "event")} in the middle of its life.</span>;
}

// Being live

/** Call soon, and once for many calls. */
function useSoon(call: () => void): () => void {
  const latest = useRef(call);
  latest.current = call;
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => latest.current(), SOON);
  };
}

/** A stream ends with its run: a job that is retried in place is followed anew. */
function Follow({ job, after, told }: { job: Job; after: number; told: (event: JobEvent) => void }) {
  useEvents(job.id, job.tenant, after, told);
  return null;
}

/** What an event alone says about its job, until all is read again. */
function moved(event: JobEvent): Partial<Job> {
  const data = (event.data ?? {}) as Record<string, unknown>;
  return {
    state: event.state,
    ...(event.type === "progress" && typeof data["progress"] === "number" ? { progress: data["progress"] } : {}),
    ...(event.type === "stage" && typeof data["stage"] === "string" ? { stage: data["stage"] } : {}),
  };
}

interface Story {
  /** In order, without a gap. */
  events: readonly JobEvent[];
  last: number | null;
  add: (more: readonly JobEvent[]) => void;
  /** Reads earlier ones; null where all are there. */
  earlier: (() => Promise<void>) | null;
}

/** The last events of a job: read once, then heard. */
function useStory(job: Job): Story {
  const [events, setEvents] = useState<readonly JobEvent[] | null>(null);
  const add = (more: readonly JobEvent[]) => setEvents((before) => joined(before ?? [], more));
  const read = async (after: number, limit: number) => {
    const page = await get<Events>(`jobs/${part(job.id)}/events`, { tenant: job.tenant, after, limit });
    add(page.data);
  };
  const hasMore = events !== null && (events.at(-1)?.seq ?? 0) < job.events;
  useEffect(() => {
    read(Math.max(0, job.events - EVENTS), EVENTS).catch((error: Error) => toast(error.message, "bad"));
  }, [job.id]);
  useEffect(() => {
    // What was not heard, because the stream rested or had ended.
    if (hasMore) read(events?.at(-1)?.seq ?? 0, EVENTS).catch(() => null);
  }, [job.events]);
  const first = events?.[0]?.seq ?? 1;
  return {
    events: events ?? [],
    last: events === null ? null : (events.at(-1)?.seq ?? 0),
    add,
    earlier:
      first > 1 && (events?.length ?? 0) < EVENTS_MAX
        ? () => read(Math.max(0, first - 1 - EVENTS), Math.min(EVENTS, first - 1))
        : null,
  };
}

/** Both in order; what is read or heard anew lies before or after what is known, as a rule, and may overlap it. */
function joined(known: readonly JobEvent[], more: readonly JobEvent[]): readonly JobEvent[] {
  const first = known[0]?.seq ?? Number.POSITIVE_INFINITY;
  const last = known.at(-1)?.seq ?? 0;
  const earlier = known.length ? more.filter((event) => event.seq < first) : [];
  const later = more.filter((event) => event.seq > last);
  if (!earlier.length && !later.length) return known;
  return [...earlier, ...known, ...later].slice(-EVENTS_MAX);
}

/** The states that it has come through, in order. */
function passed(events: readonly JobEvent[]): string[] {
  return events.map((event) => event.state).filter((state, index, all) => state !== all[index - 1]);
}

// The head

function Headline({ job }: { job: Job }) {
  return (
    <div class="job-line">
      <StateBadge state={job.state} phase={job.phase} outcome={job.outcome} />
      {job.cancel_requested_at && !job.outcome && <Badge tone="warn">canceling</Badge>}
      {job.phase === "leased" && (
        <>
          {job.stage && <span>{plain(job.stage)}</span>}
          <Progress value={job.progress} label="Progress" />
          <span class="soft numeric">{Math.round(job.progress * 100)} %</span>
        </>
      )}
      <strong>{cost(job)}</strong>
      <Id id={job.id} whole />
    </div>
  );
}

function cost(job: Job): string {
  if (!job.price) return "free";
  if (!job.outcome) return `${credits(job.price)} held`;
  if (!job.captured) return `${credits(job.price)} released`;
  return job.captured < job.price
    ? `${number(job.captured)} of ${credits(job.price)} captured`
    : `${credits(job.captured)} captured`;
}

function Acts({ job, acts }: { job: Job; acts: JobActs }) {
  useKeys({ r: acts.retry, c: acts.cancel });
  return (
    <>
      {acts.answer && (
        <Act tone="main" does={acts.answer}>
          Answer…
        </Act>
      )}
      <Act does={acts.retry} tone={job.outcome === "failed" || job.outcome === "expired" ? "main" : "plain"}>
        Retry… <kbd>r</kbd>
      </Act>
      <Act does={acts.cancel} tone="bad">
        Cancel… <kbd>c</kbd>
      </Act>
      {acts.refund && <Act does={acts.refund}>Refund…</Act>}
      {acts.priority && <Act does={acts.priority}>Priority…</Act>}
      <Link to={`/playground/${part(job.kind)}`} query={{ from: job.id, of: job.tenant }} class="button">
        Again with changes
      </Link>
      <Copied text={asCurl(job)} what="command for curl">
        Copy as curl
      </Copied>
      <Copied text={asPython(job)} what="program in Python">
        Copy as Python
      </Copied>
    </>
  );
}

interface ActProps {
  does: Does;
  tone?: "main" | "bad" | "plain";
  children: ComponentChildren;
}

function Act({ does, tone = "plain", children }: ActProps) {
  const because = typeof does === "string" ? does : undefined;
  return (
    <Button tone={tone} because={because} onClick={() => typeof does !== "string" && does()}>
      {children}
    </Button>
  );
}

function Copied({ text, what, children }: { text: string; what: string; children: string }) {
  return <Copy text={text} what={what} label={children} />;
}

/** Single keys, unless something is typed, or a key before it meant another page. */
function useKeys(keys: Record<string, Does>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    const press = (event: KeyboardEvent) => {
      const isGoing = before === "g";
      before = event.key;
      if (event.ctrlKey || event.metaKey || event.altKey || isGoing || isAsking.value) return;
      if ((event.target as HTMLElement).closest("input, textarea, select, dialog")) return;
      const does = latest.current[event.key];
      if (typeof does === "string") toast(does, "warn");
      else if (does) {
        event.preventDefault();
        does();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// What went wrong

const WHY: Record<string, string> = {
  failed: "It failed",
  expired: "It was not done by its deadline",
  blocked: "It was blocked: its content is not allowed",
  canceled: "It was canceled",
};

function Trouble({ dossier, job, acts }: { dossier: Dossier; job: Job; acts: JobActs }) {
  if (!job.outcome || job.outcome === "succeeded") return null;
  const error = (dossier.job.error ?? {}) as { code?: string; message?: string; hint?: string; traceback?: string };
  const tries = dossier.attempts.length;
  const isQuiet = job.outcome === "canceled" || job.outcome === "blocked";
  return (
    <section class={`job-error ${isQuiet ? "quiet" : ""}`} aria-label="Why it did not succeed">
      <h2>{error.message ?? `${WHY[job.outcome]}.`}</h2>
      <p>
        {WHY[job.outcome]}
        {tries > 0 && ` after ${plural(tries, "attempt")}`}
        {job.finished_at && (
          <>
            , <Ago at={job.finished_at} />
          </>
        )}
        . {job.price > 0 && !job.captured && `The ${credits(job.price)} that were held went back.`} {error.hint}
      </p>
      <p>
        {error.code && <code>{error.code}</code>}{" "}
        <Link
          to="/jobs"
          query={{ kind: job.kind, outcome: job.outcome, ...(error.code ? { error: error.code } : {}), since: "24h" }}
        >
          Others that ended like this
        </Link>
        {" · "}
        <Link to={place.value.path} query={{ ...Object.fromEntries(place.value.query), tab: "log" }}>
          Its log
        </Link>
        {dossier.retries.length > 0 && (
          <>
            {" · "}retried as{" "}
            {dossier.retries.map((each) => (
              <Id key={each} id={each} tenant={job.tenant} />
            ))}
          </>
        )}
      </p>
      {typeof acts.retry !== "string" && (
        <div class="acts">
          <Act does={acts.retry}>Retry it…</Act>
        </div>
      )}
    </section>
  );
}

// Money

/** What it cost and why, in a sentence. */
function why(job: Job, entries: readonly Entry[]): string {
  if (!job.price) return "This kind is free: nothing is held for it.";
  if (!job.outcome)
    return `${credits(job.price)} are held until it ends; then they are captured, or given back if it does not succeed.`;
  const back = refunded(entries);
  const after = back ? ` ${credits(back)} were refunded later, so it cost ${credits((job.captured ?? 0) - back)}.` : "";
  if (!job.captured)
    return job.outcome === "succeeded"
      ? `It succeeded and charged nothing: ${credits(job.price)} went back.`
      : `It did not succeed, so it cost nothing: ${credits(job.price)} went back.`;
  if (job.captured < job.price)
    return `It charged ${number(job.captured)} of the ${credits(job.price)} that were held; the rest went back.${after}`;
  return `It succeeded, so the ${credits(job.captured)} that were held were captured.${after}`;
}

function Money({ dossier, job }: { dossier: Dossier; job: Job }) {
  const wallet = `/credits/${part(job.tenant)}/${part(job.account)}`;
  return (
    <Panel title="Money" aside={<Link to={wallet}>The wallet of {job.account}</Link>}>
      <p class="job-sum">{why(job, dossier.entries)}</p>
      {dossier.entries.length > 0 && (
        <Table
          label="Entries of the ledger"
          rows={dossier.entries}
          keyOf={(entry) => String(entry.seq)}
          columns={[
            {
              name: "entry",
              head: "Entry",
              cell: (entry) => (
                <Link to={wallet} query={{ cursor: entry.seq + 1 }}>
                  {isRefund(entry) ? "refund" : entry.type}
                </Link>
              ),
            },
            {
              name: "available",
              head: "Available",
              align: "right",
              cell: (entry) => <Credits value={entry.available} sign />,
            },
            { name: "held", head: "Held", align: "right", cell: (entry) => <Credits value={entry.held} sign /> },
            {
              name: "after",
              head: "Available after",
              align: "right",
              hide: "narrow",
              cell: (entry) => <Credits value={entry.available_after} />,
            },
            { name: "reason", head: "Reason", cell: (entry) => entry.reason ?? "–" },
            { name: "at", head: "At", cell: (entry) => <Moment at={entry.at} /> },
          ]}
        />
      )}
    </Panel>
  );
}

// Facts

function Side({ dossier, job }: { dossier: Dossier; job: Job }) {
  return (
    <Panel title="Facts">
      <Facts>
        <Fact name="Whose">
          <Link to={`/credits/${part(job.tenant)}/${part(job.account)}`}>
            {job.tenant}/{job.account}
          </Link>
        </Fact>
        {dossier.worker && (
          <Fact name="Worker">{dossier.worker_id ? <Id id={dossier.worker_id} /> : <code>{dossier.worker}</code>}</Fact>
        )}
        {job.position !== null && (
          <Fact name="Place in line">{job.position >= 1000 ? "1,000 or more" : number(job.position)}</Fact>
        )}
        {job.eta && (
          <Fact name="Likely done">
            by <Moment at={job.eta.p50} />, nine of ten by <Moment at={job.eta.p90} />
          </Fact>
        )}
        <Fact name="Submitted">
          <Moment at={job.created_at} /> (<Ago at={job.created_at} />)
        </Fact>
        {job.run_at && (
          <Fact name="Not before">
            <Moment at={job.run_at} />
          </Fact>
        )}
        <Fact name="Started">
          <Moment at={job.started_at} none="not yet" />
        </Fact>
        <Fact name="Ended">
          {job.finished_at ? (
            <>
              <Moment at={job.finished_at} />
              {job.started_at && ` after ${span(between(job.started_at, job.finished_at))}`}
            </>
          ) : (
            "not yet"
          )}
        </Fact>
        {job.expires_at && (
          <Fact name="Deadline">
            <Moment at={job.expires_at} /> (<Ago at={job.expires_at} />)
          </Fact>
        )}
        <Fact name="Attempts">
          {number(dossier.attempts.length)}
          {job.attempts > 0 && `, ${number(job.attempts)} failed`}
          {job.run > 1 && `, run ${job.run}`}
        </Fact>
        <Fact name="Priority">{number(job.priority)}</Fact>
        <Fact name="Queue">
          <Link to="/kinds" query={{ queue: job.queue }}>
            {job.queue}
          </Link>
        </Fact>
        {dossier.key && (
          <Fact name="Idempotency key">
            <code>{dossier.key}</code> <Copy text={dossier.key} what="key" />
          </Fact>
        )}
        {job.retry_of && (
          <Fact name="Retry of">
            <Id id={job.retry_of} tenant={job.tenant} />
          </Fact>
        )}
        {dossier.retries.length > 0 && (
          <Fact name="Retried as">
            {dossier.retries.map((each) => (
              <Id key={each} id={each} tenant={job.tenant} />
            ))}
          </Fact>
        )}
      </Facts>
    </Panel>
  );
}

// The parts, behind tabs

/** What is shown of it unless something was chosen: what matters most, but nothing changes under a reader's hand. */
function useFirst() {
  const box = useRef<HTMLDivElement>(null);
  const shown = useRef("");
  return {
    box,
    of: (job: Job): string => {
      const isRead = box.current?.matches(":hover, :focus-within") ?? false;
      if (!isRead || !shown.current)
        shown.current = job.outcome === "succeeded" ? "output" : job.outcome ? "input" : "log";
      return shown.current;
    },
  };
}

interface PartsProps {
  dossier: Dossier;
  job: Job;
  story: Story;
  reload: () => void;
}

function Parts({ dossier, job, story, reload }: PartsProps) {
  const first = useFirst();
  const counts: Record<string, number> = {
    log: story.events.filter((event) => event.type === "log").length,
    events: job.events,
    attempts: dossier.attempts.length,
    deliveries: dossier.deliveries.length,
    files: dossier.files.length,
    provider: dossier.submissions.length,
  };
  const names = ["input", "output", "log", "events", "attempts", "deliveries", "files", "provider"];
  const tabs = names.map((name) => ({
    name,
    title: (
      <>
        {name.charAt(0).toUpperCase() + name.slice(1)}
        {counts[name] ? <span class="soft"> {number(counts[name])}</span> : null}
      </>
    ),
  }));
  const asked = place.value.query.get("tab") ?? first.of(job);
  const chosen = names.includes(asked) ? asked : "input";
  return (
    <div ref={first.box}>
      <Tabs tabs={tabs} chosen={chosen} label="Parts of the job" onChoose={(tab) => setQuery({ tab })} />
      <div role="tabpanel" aria-labelledby={`tab-${chosen}`}>
        {chosen === "input" && <Json value={job.input} label="input" />}
        {chosen === "output" && <Output dossier={dossier} job={job} />}
        {chosen === "log" && <Log story={story} isOver={job.outcome !== null} />}
        {chosen === "events" && <AllEvents story={story} />}
        {chosen === "attempts" && <Attempts dossier={dossier} />}
        {chosen === "deliveries" && <Deliveries dossier={dossier} reload={reload} />}
        {chosen === "files" && <Files files={dossier.files} />}
        {chosen === "provider" && <Submissions dossier={dossier} />}
      </div>
    </div>
  );
}

function Output({ dossier, job }: { dossier: Dossier; job: Job }) {
  const seen = dossier.files.filter((file) => /^(image|video|audio)\//.test(file.content_type) && file.download);
  const given = JSON.stringify(job.input);
  const made = seen.filter((file) => !given.includes(file.id));
  if (job.outcome === null)
    return (
      <Empty title="It has made nothing yet.">
        <p>What it makes is shown here as soon as it has ended.</p>
      </Empty>
    );
  return (
    <>
      {made.length > 0 && (
        <div class="media-grid">
          {made.map((file) => (
            <Media key={file.id} file={file} />
          ))}
        </div>
      )}
      {dossier.job.output === null || dossier.job.output === undefined ? (
        <p class="soft">It gave nothing back.</p>
      ) : (
        <Json value={dossier.job.output} label="output" />
      )}
    </>
  );
}

const LEVELS = ["debug", "info", "warning", "error"];

interface Line {
  seq: number;
  at: string;
  level: string;
  text: string;
}

function lineOf(event: JobEvent): Line {
  const data = (event.data ?? {}) as { text?: unknown; level?: unknown };
  return { seq: event.seq, at: event.at, level: String(data.level ?? "info"), text: String(data.text ?? "") };
}

/** The log follows its end, unless the reader has scrolled up. */
function Log({ story, isOver }: { story: Story; isOver: boolean }) {
  const level = place.value.query.get("level") ?? "debug";
  const least = Math.max(0, LEVELS.indexOf(level));
  const lines = story.events
    .filter((event) => event.type === "log")
    .map(lineOf)
    .filter((line) => !LEVELS.includes(line.level) || LEVELS.indexOf(line.level) >= least);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    const home = box.current;
    if (home && isAtEnd.current) home.scrollTop = home.scrollHeight;
  }, [lines.length]);
  const scrolled = () => {
    const home = box.current;
    if (home) isAtEnd.current = home.scrollHeight - home.scrollTop - home.clientHeight < 24;
  };
  const whole = lines.map((line) => `${line.at} ${line.level} ${line.text}`).join("\n");
  if (story.last === null) return <Skeleton />;
  return (
    <>
      <div class="job-tools">
        <label class="spaced">
          <span class="soft">Level </span>
          <select value={level} onChange={(event) => setQuery({ level: event.currentTarget.value })}>
            {LEVELS.map((each) => (
              <option key={each} value={each}>
                {each === "debug" ? "all" : each === "error" ? "errors" : `${each} and worse`}
              </option>
            ))}
          </select>
        </label>
        <Earlier story={story} />
        <Copy text={whole} what="log" label="Copy" />
      </div>
      <div class="job-log" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label="Log" aria-live="off">
        {lines.length ? (
          <ol>
            {lines.map((line) => (
              <li key={line.seq} class={line.level}>
                <time dateTime={line.at} title={line.at} class="soft">
                  {clock(line.at)}
                </time>
                <span>{line.level}</span>
                <span>{line.text}</span>
              </li>
            ))}
          </ol>
        ) : (
          <p class="soft">
            {isOver ? "It wrote no such line." : "No such line yet. Lines appear here as they are written."}
          </p>
        )}
      </div>
    </>
  );
}

function Earlier({ story }: { story: Story }) {
  const read = story.earlier;
  if (!read) return null;
  return (
    <Button tone="small" onClick={() => attempt(read, "Read.")}>
      Read earlier ones
    </Button>
  );
}

function AllEvents({ story }: { story: Story }) {
  return (
    <>
      <div class="job-tools">
        <span class="soft spaced">As they were written, the newest first.</span>
        <Earlier story={story} />
        <Copy text={JSON.stringify(story.events, null, 2)} what="events" label="Copy as JSON" />
      </div>
      <Table
        label="Events"
        rows={[...story.events].reverse()}
        keyOf={(event) => String(event.seq)}
        empty={<Empty title="Nothing has happened yet." />}
        columns={[
          { name: "seq", head: "No.", align: "right", cell: (event) => event.seq },
          { name: "at", head: "At", cell: (event) => <Moment at={event.at} /> },
          { name: "type", head: "Type", cell: (event) => plain(event.type) },
          { name: "state", head: "State", cell: (event) => plain(event.state) },
          {
            name: "data",
            head: "Data",
            cell: (event) =>
              event.data === null || event.data === undefined ? (
                <span class="soft">–</span>
              ) : (
                <span class="job-data">{JSON.stringify(event.data)}</span>
              ),
          },
        ]}
      />
    </>
  );
}

function Attempts({ dossier }: { dossier: Dossier }) {
  return (
    <Table
      label="Attempts"
      rows={dossier.attempts}
      keyOf={(each) => String(each.number)}
      empty={
        <Empty title="No worker has taken it yet.">
          <p>Each time a worker takes it is told here, with how that ended.</p>
        </Empty>
      }
      toneOf={(each) => (each.outcome === "failed" || each.cause ? "bad" : undefined)}
      columns={[
        {
          name: "number",
          head: "Attempt",
          cell: (each) => `${each.number}${each.run > 1 ? ` (run ${each.run})` : ""}`,
        },
        { name: "from", head: "From", cell: (each) => <Moment at={each.from} /> },
        {
          name: "for",
          head: "For",
          align: "right",
          cell: (each) => (each.to ? span(between(each.from, each.to)) : <Ago at={each.from} />),
        },
        {
          name: "worker",
          head: "Worker",
          cell: (each) => (each.worker_id ? <Id id={each.worker_id} /> : (each.worker ?? "–")),
        },
        {
          name: "outcome",
          head: "How it ended",
          cell: (each) => (each.outcome ? plain(each.outcome) : <Badge tone="main">it lasts</Badge>),
        },
        {
          name: "why",
          head: "Why",
          cell: (each) => [each.cause && plain(each.cause), each.error_code].filter(Boolean).join(": ") || "–",
        },
      ]}
    />
  );
}

const DELIVERY_TONES: Record<string, "good" | "bad" | "info" | "quiet"> = {
  delivered: "good",
  failed: "bad",
  pending: "info",
};

function Deliveries({ dossier, reload }: { dossier: Dossier; reload: () => void }) {
  const resend = (id: string) =>
    attempt(
      () => act("POST", `deliveries/${part(id)}/resend`, undefined, { query: { tenant: dossier.job.tenant } }),
      "It is sent again.",
    ).then(reload);
  return (
    <Table
      label="Deliveries"
      rows={dossier.deliveries}
      keyOf={(each) => each.id}
      empty={
        <Empty title="Nobody was told of it.">
          <p>
            Make an <Link to="/webhooks">endpoint</Link>, or submit a job with a webhook of its own.
          </p>
        </Empty>
      }
      toneOf={(each) => (each.state === "failed" ? "bad" : undefined)}
      columns={[
        { name: "event", head: "Event", cell: (each) => each.event },
        {
          name: "state",
          head: "State",
          cell: (each) => <Badge tone={DELIVERY_TONES[each.state] ?? "quiet"}>{each.state}</Badge>,
        },
        { name: "tries", head: "Tries", align: "right", cell: (each) => each.tries },
        {
          name: "to",
          head: "To",
          cell: (each) =>
            each.endpoint_id ? <Id id={each.endpoint_id} tenant={each.tenant} /> : "the webhook of the job",
        },
        { name: "id", head: "Delivery", cell: (each) => <Id id={each.id} tenant={each.tenant} /> },
        { name: "at", head: "At", cell: (each) => <Moment at={each.created_at} /> },
        {
          name: "acts",
          head: "",
          cell: (each) => (
            <Button
              tone="small"
              because={refusal("operator")}
              onClick={() => resend(each.id)}
              aria-label={`Resend ${each.event}`}
            >
              Resend
            </Button>
          ),
        },
      ]}
    />
  );
}

function Files({ files }: { files: readonly Artifact[] }) {
  if (!files.length)
    return (
      <Empty title="It has no files.">
        <p>What it was given and what it made is shown here, with previews.</p>
      </Empty>
    );
  return (
    <div class="media-grid">
      {files.map((file) => (
        <Media key={file.id} file={file} />
      ))}
    </div>
  );
}

function Submissions({ dossier }: { dossier: Dossier }) {
  return (
    <Table
      label="What providers were asked"
      rows={dossier.submissions}
      keyOf={(each) => each.id}
      empty={<Empty title="No provider was asked for it." />}
      columns={[
        { name: "provider", head: "Provider", cell: (each) => each.provider },
        { name: "status", head: "Status", cell: (each) => <Badge>{plain(each.status)}</Badge> },
        {
          name: "prediction",
          head: "Prediction",
          cell: (each) =>
            each.prediction_id ? (
              <>
                <code>{each.prediction_id}</code> <Copy text={each.prediction_id} what="id" />
              </>
            ) : (
              "–"
            ),
        },
        { name: "part", head: "Part", cell: (each) => each.part || "all" },
        { name: "created", head: "Asked", cell: (each) => <Moment at={each.created_at} /> },
        { name: "over", head: "Over", cell: (each) => <Moment at={each.over_at} none="not yet" /> },
      ]}
    />
  );
}
