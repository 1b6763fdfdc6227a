// One job: its state, cost, history and actions, updated live.

import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { act, get, refusal } from "../api";
import { type Following, useLoaded, useStream } from "../live";
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
  Instant,
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
import { type EmittedText, LiveText, NO_TEXT, textSoFar, withChunk } from "../parts/livetext";
import { Media } from "../parts/media";
import { ScheduleFact } from "../parts/schedules";
import { asCurl, asPython } from "../parts/snippets";
import { Table } from "../parts/table";
import { Timeline } from "../parts/timeline";
import { attempt, toast } from "../parts/toasts";
import { Traceback, tracebackOf } from "../parts/traceback";
import { Link, part, place, setQuery } from "../router";
import type {
  Artifact,
  Budget,
  Chunk,
  Entry,
  Events,
  Job,
  JobComposition,
  JobDetail,
  Event as JobEvent,
  JobText,
} from "../wire";
import { between, clock, credits, number, plain, plural, shortId, span } from "../words";
import { type Action, actsOn, heldFor, isRefund, type JobActs, refunded } from "./job-acts";
import { Questions } from "./job-questions";
import { Children, Wait } from "./job-tree";
import "./job.css";

/** The number of newest events read when the page opens; earlier ones are loaded on request. */
const EVENTS = 500;
/** The number of events kept, so that a job that logs for hours does not fill the browser's memory. */
const EVENTS_MAX = 5_000;
const RELOAD_DELAY_MS = 120;

export function JobPage({ id }: { id: string }) {
  const of = place.value.query.get("of");
  const found = useLoaded((signal) => get<JobDetail>(`board/jobs/${part(id)}`, { tenant: of }, signal), [id, of]);
  const detail = found.value;
  return detail ? (
    <Shown key={id} detail={detail} reload={found.reload} stale={found.problem?.message ?? null} />
  ) : (
    <Page title="Job" aside={<Id id={id} whole />}>
      <Show of={found} lines={8}>
        {() => null}
      </Show>
    </Page>
  );
}

function Shown({ detail, reload, stale }: { detail: JobDetail; reload: () => void; stale: string | null }) {
  const [live, setLive] = useState<Partial<Job>>({});
  const again = useDebounced(reload);
  const emitted = useSignal(NO_TEXT);
  const eventLog = useEventLog(detail.job, emitted);
  const isNewer = (live.events ?? 0) > detail.job.events;
  const job: Job = isNewer ? { ...detail.job, ...live } : detail.job;
  const receive = (event: JobEvent) => {
    eventLog.add([event]);
    setLive((before) => ({ ...before, ...moved(event), events: event.seq }));
    if (event.type !== "log" && event.type !== "progress") again();
  };
  const receiveChunk = (chunk: Chunk) => {
    emitted.value = withChunk(emitted.value, chunk);
  };
  const acts = actsOn({ job, detail, reload });
  const start = eventLog.startOf(job.run);
  return (
    <Page
      title={job.kind}
      tab={`${plain(job.state)} ${job.kind} ${shortId(job.id)}`}
      aside={<Headline job={job} composition={detail.composition} />}
      acts={<Acts job={job} acts={acts} />}
    >
      {start !== null && <Follow key={job.run} job={job} after={start} onEvent={receive} onChunk={receiveChunk} />}
      {stale && <p class="stale">Out of date: {stale}</p>}
      <Trouble detail={detail} job={job} acts={acts} />
      {detail.composition && (
        <>
          <Questions job={job} questions={detail.composition.questions} reload={reload} />
          <Children job={job} composition={detail.composition} />
        </>
      )}
      <Panel title="Timeline" aside={detail.events_left_out > 0 && <LeftOut events={detail.events_left_out} />}>
        <Timeline spans={detail.spans} isOver={job.outcome !== null} />
      </Panel>
      <div class="job-body">
        <div>
          <Panel>
            <Parts detail={detail} job={job} eventLog={eventLog} emitted={emitted} reload={reload} />
          </Panel>
          <Money detail={detail} job={job} />
        </div>
        <div class="job-side">
          <Side detail={detail} job={job} />
        </div>
      </div>
      {detail.lifecycle && (
        <Panel title="Lifecycle" aside={<Link to={`/kinds/${part(job.kind)}`}>Kind {job.kind}</Link>}>
          <Diagram lifecycle={detail.lifecycle} at={job.state} passed={passed(eventLog.events)} />
        </Panel>
      )}
    </Page>
  );
}

function LeftOut({ events }: { events: number }) {
  return <span class="soft">{plural(events, "event")} in the middle omitted</span>;
}

// Live updates

/** Debounces: calls in quick succession cause a single one. */
function useDebounced(call: () => void): () => void {
  const latest = useRef(call);
  latest.current = call;
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => latest.current(), RELOAD_DELAY_MS);
  };
}

/** Follows the stream of one run, at whose end it ends. A run after a retry in place is followed anew. */
function Follow({ job, after, ...following }: { job: Job; after: string } & Following) {
  useStream(job.id, job.tenant, after, following);
  return null;
}

/** The fields of a job that an event changes, used until the job is read again. */
function moved(event: JobEvent): Partial<Job> {
  const data = (event.data ?? {}) as Record<string, unknown>;
  return {
    state: event.state,
    ...(event.type === "progress" && typeof data["progress"] === "number" ? { progress: data["progress"] } : {}),
    ...(event.type === "stage" && typeof data["stage"] === "string" ? { stage: data["stage"] } : {}),
  };
}

interface EventLog {
  /** In order, without a gap. */
  events: readonly JobEvent[];
  last: number | null;
  /** Where to follow a run; null until that is known. */
  startOf: (run: number) => string | null;
  add: (more: readonly JobEvent[]) => void;
  /** Loads earlier events; null if there are none, or the limit is reached. */
  earlier: (() => Promise<void>) | null;
}

/** The newest events of a job, and the text that it has emitted: read once, then received from the stream. */
function useEventLog(job: Job, emitted: Signal<EmittedText>): EventLog {
  const [events, setEvents] = useState<readonly JobEvent[] | null>(null);
  const begun = useRef({ run: job.run, at: "" });
  const add = (more: readonly JobEvent[]) => setEvents((before) => joined(before ?? [], more));
  const read = async (after: number, limit: number) => {
    const page = await get<Events>(`jobs/${part(job.id)}/events`, { tenant: job.tenant, after, limit });
    add(page.data);
  };
  const hasMore = events !== null && (events.at(-1)?.seq ?? 0) < job.events;
  useEffect(() => {
    const begin = async () => {
      if (!job.outcome) {
        // Read before the events, so that the stream continues both: it repeats events rather than missing one.
        const text = await get<JobText>(`jobs/${part(job.id)}/text`, { tenant: job.tenant });
        emitted.value = textSoFar(text);
        begun.current.at = text.last_event_id;
      }
      await read(Math.max(0, job.events - EVENTS), EVENTS);
    };
    begin().catch((error: Error) => toast(error.message, "bad"));
  }, [job.id]);
  useEffect(() => {
    // Events that were missed because the stream was closed or had ended.
    if (hasMore) read(events?.at(-1)?.seq ?? 0, EVENTS).catch(() => null);
  }, [job.events]);
  const first = events?.[0]?.seq ?? 1;
  const last = events === null ? null : (events.at(-1)?.seq ?? 0);
  const startOf = (run: number) =>
    last === null ? null : (run === begun.current.run && begun.current.at) || String(last);
  return {
    events: events ?? [],
    last,
    startOf,
    add,
    earlier:
      first > 1 && (events?.length ?? 0) < EVENTS_MAX
        ? () => read(Math.max(0, first - 1 - EVENTS), Math.min(EVENTS, first - 1))
        : null,
  };
}

/** All events in order. The new ones come before or after the known ones, as a rule, and may overlap them. */
function joined(known: readonly JobEvent[], more: readonly JobEvent[]): readonly JobEvent[] {
  const first = known[0]?.seq ?? Number.POSITIVE_INFINITY;
  const last = known.at(-1)?.seq ?? 0;
  const earlier = known.length ? more.filter((event) => event.seq < first) : [];
  const later = more.filter((event) => event.seq > last);
  if (!earlier.length && !later.length) return known;
  return [...earlier, ...known, ...later].slice(-EVENTS_MAX);
}

/** The states that the job has passed, in order. */
function passed(events: readonly JobEvent[]): string[] {
  return events.map((event) => event.state).filter((state, index, all) => state !== all[index - 1]);
}

// The head

function Headline({ job, composition }: { job: Job; composition: JobComposition | null }) {
  return (
    <div class="job-line">
      <StateBadge state={job.state} phase={job.phase} outcome={job.outcome} />
      {job.cancel_requested_at && !job.outcome && <Badge tone="warn">canceling</Badge>}
      <Wait job={job} wakesAt={composition?.wakes_at ?? null} />
      {job.phase === "leased" && (
        <>
          {job.stage && <span>{plain(job.stage)}</span>}
          <Progress value={job.progress} label="Progress" />
          <span class="soft numeric">{Math.round(job.progress * 100)} %</span>
        </>
      )}
      <strong>{cost(job, composition)}</strong>
      <Id id={job.id} whole />
      {job.parent_id && (
        <span>
          <span class="soft">child of</span> <Id id={job.parent_id} tenant={job.tenant} />
        </span>
      )}
    </div>
  );
}

function cost(job: Job, composition: JobComposition | null): string {
  const budget = composition?.budget;
  if (budget)
    return job.outcome
      ? `${credits((job.captured ?? 0) + budget.spent)} captured`
      : `${credits(heldFor(job, composition))} held`;
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
        <Act tone="main" action={acts.answer}>
          Answer…
        </Act>
      )}
      <Act action={acts.retry} tone={job.outcome === "failed" || job.outcome === "expired" ? "main" : "plain"}>
        Retry… <kbd>r</kbd>
      </Act>
      <Act action={acts.cancel} tone="bad">
        Cancel… <kbd>c</kbd>
      </Act>
      {acts.refund && <Act action={acts.refund}>Refund…</Act>}
      {acts.priority && <Act action={acts.priority}>Priority…</Act>}
      <Link to={`/playground/${part(job.kind)}`} query={{ from: job.id, of: job.tenant }} class="button">
        Edit and resubmit
      </Link>
      <Copied text={asCurl(job)} what="curl command">
        Copy as curl
      </Copied>
      <Copied text={asPython(job)} what="Python program">
        Copy as Python
      </Copied>
    </>
  );
}

interface ActProps {
  action: Action;
  tone?: "main" | "bad" | "plain";
  children: ComponentChildren;
}

function Act({ action, tone = "plain", children }: ActProps) {
  const because = typeof action === "string" ? action : undefined;
  return (
    <Button tone={tone} because={because} onClick={() => typeof action !== "string" && action()}>
      {children}
    </Button>
  );
}

function Copied({ text, what, children }: { text: string; what: string; children: string }) {
  return <Copy text={text} what={what} label={children} />;
}

/** Single-key shortcuts, except in fields and dialogs, and after `g`, which begins the shortcut of a page. */
function useKeys(keys: Record<string, Action>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    const press = (event: KeyboardEvent) => {
      const isGoing = before === "g";
      before = event.key;
      if (event.ctrlKey || event.metaKey || event.altKey || isGoing || isAsking.value) return;
      if ((event.target as HTMLElement).closest("input, textarea, select, dialog")) return;
      const action = latest.current[event.key];
      if (typeof action === "string") toast(action, "warn");
      else if (action) {
        event.preventDefault();
        action();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// The error

const WHY: Record<string, string> = {
  failed: "Failed",
  expired: "Expired: the job did not finish by its deadline",
  blocked: "Blocked: the content is not allowed",
  canceled: "Canceled",
};

function Trouble({ detail, job, acts }: { detail: JobDetail; job: Job; acts: JobActs }) {
  if (!job.outcome || job.outcome === "succeeded") return null;
  const error = (detail.job.error ?? {}) as { code?: string; message?: string; hint?: string };
  const tries = detail.attempts.length;
  const isQuiet = job.outcome === "canceled" || job.outcome === "blocked";
  return (
    <section class={`job-error ${isQuiet ? "quiet" : ""}`} aria-label="Error">
      <h2>{error.message ?? `${WHY[job.outcome]}.`}</h2>
      <p>
        {WHY[job.outcome]}
        {tries > 0 && ` after ${plural(tries, "attempt")}`}
        {job.finished_at && (
          <>
            , <Ago at={job.finished_at} />
          </>
        )}
        . {job.price > 0 && !job.captured && `The ${credits(job.price)} held were released.`} {error.hint}
      </p>
      <p>
        {error.code && <code>{error.code}</code>}{" "}
        <Link
          to="/jobs"
          query={{ kind: job.kind, outcome: job.outcome, ...(error.code ? { error: error.code } : {}), since: "24h" }}
        >
          Jobs with the same failure
        </Link>
        {" · "}
        <Link to={place.value.path} query={{ ...Object.fromEntries(place.value.query), tab: "log" }}>
          Log
        </Link>
        {detail.retries.length > 0 && (
          <>
            {" · "}retried as{" "}
            {detail.retries.map((each) => (
              <Id key={each} id={each} tenant={job.tenant} />
            ))}
          </>
        )}
      </p>
      <Traceback text={tracebackOf(detail)} />
      {typeof acts.retry !== "string" && (
        <div class="acts">
          <Act action={acts.retry}>Retry this job…</Act>
        </div>
      )}
    </section>
  );
}

// Credits

/** A sentence about what the job costs and why. */
function costSentence(job: Job, { entries, composition }: JobDetail): string {
  const budget = composition?.budget;
  if (budget) return budgetSentence(job, budget, entries);
  if (job.price && job.parent_id && !entries.some((entry) => entry.type === "hold")) return sharedSentence(job);
  if (!job.price) return "This kind is free; no credits are held.";
  if (!job.outcome)
    return `${credits(job.price)} are held until the job ends. They are captured if it succeeds and released if it does not.`;
  const back = refunded(entries);
  const after = back
    ? ` ${credits(back)} were refunded later; the net cost is ${credits((job.captured ?? 0) - back)}.`
    : "";
  if (!job.captured)
    return job.outcome === "succeeded"
      ? `The job succeeded and charged nothing; ${credits(job.price)} were released.`
      : `The job did not succeed and cost nothing; ${credits(job.price)} were released.`;
  if (job.captured < job.price)
    return `The job captured ${number(job.captured)} of the ${credits(job.price)} held; the rest was released.${after}`;
  return `The job succeeded, and the ${credits(job.captured)} held were captured.${after}`;
}

/** The same for a job with a budget, which is held with its price. */
function budgetSentence(job: Job, budget: Budget, entries: readonly Entry[]): string {
  const own = job.price ? `${credits(job.price)} for the job and ${credits(budget.amount)}` : credits(budget.amount);
  if (!job.outcome) return `${own} for its children are held until the job ends. What they do not use is released.`;
  const back = refunded(entries);
  const total = (job.captured ?? 0) + budget.spent;
  const after = back ? ` ${credits(back)} were refunded later.` : "";
  return `The job cost ${credits(job.captured ?? 0)} and its children ${credits(budget.spent)}, ${credits(total)} in all; the rest was released.${after}`;
}

/** The same for a job that the budget of an ancestor pays for. */
function sharedSentence(job: Job): string {
  const where = "the budget of a job above";
  if (!job.outcome) return `${credits(job.price)} are reserved in ${where} until the job ends.`;
  return job.captured
    ? `The job cost ${credits(job.captured)}, paid from ${where}.`
    : `The job cost nothing; ${credits(job.price)} went back to ${where}.`;
}

function Money({ detail, job }: { detail: JobDetail; job: Job }) {
  const wallet = `/credits/${part(job.tenant)}/${part(job.account)}`;
  return (
    <Panel title="Credits" aside={<Link to={wallet}>Wallet of {job.account}</Link>}>
      <p class="job-sum">{costSentence(job, detail)}</p>
      {detail.entries.length > 0 && (
        <Table
          label="Ledger entries"
          rows={detail.entries}
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
              head: "Balance",
              align: "right",
              hide: "narrow",
              cell: (entry) => <Credits value={entry.available_after} />,
            },
            { name: "reason", head: "Reason", cell: (entry) => entry.reason ?? "–" },
            { name: "at", head: "Time", cell: (entry) => <Instant at={entry.at} /> },
          ]}
        />
      )}
    </Panel>
  );
}

// Facts

function Side({ detail, job }: { detail: JobDetail; job: Job }) {
  return (
    <Panel title="Details">
      <Facts>
        <Fact name="Account">
          <Link to={`/credits/${part(job.tenant)}/${part(job.account)}`}>
            {job.tenant}/{job.account}
          </Link>
        </Fact>
        {detail.worker && (
          <Fact name="Worker">{detail.worker_id ? <Id id={detail.worker_id} /> : <code>{detail.worker}</code>}</Fact>
        )}
        {job.position !== null && (
          <Fact name="Position in queue">{job.position >= 1000 ? "1,000 or more" : number(job.position)}</Fact>
        )}
        {job.eta && (
          <Fact name="Estimated end">
            <Instant at={job.eta.p50} /> (p50), <Instant at={job.eta.p90} /> (p90)
          </Fact>
        )}
        <Fact name="Submitted">
          <Instant at={job.created_at} /> (<Ago at={job.created_at} />)
        </Fact>
        {job.run_at && (
          <Fact name="Not before">
            <Instant at={job.run_at} />
          </Fact>
        )}
        <Fact name="Started">
          <Instant at={job.started_at} none="not yet" />
        </Fact>
        <Fact name="Ended">
          {job.finished_at ? (
            <>
              <Instant at={job.finished_at} />
              {job.started_at && ` after ${span(between(job.started_at, job.finished_at))}`}
            </>
          ) : (
            "not yet"
          )}
        </Fact>
        {job.expires_at && (
          <Fact name="Deadline">
            <Instant at={job.expires_at} /> (<Ago at={job.expires_at} />)
          </Fact>
        )}
        <Fact name="Attempts">
          {number(detail.attempts.length)}
          {job.attempts > 0 && `, ${number(job.attempts)} failed`}
          {job.run > 1 && `, run ${job.run}`}
        </Fact>
        <Fact name="Priority">{number(job.priority)}</Fact>
        <Fact name="Queue">
          <Link to="/kinds" query={{ queue: job.queue }}>
            {job.queue}
          </Link>
        </Fact>
        {detail.key && (
          <Fact name="Idempotency key">
            <code>{detail.key}</code> <Copy text={detail.key} what="key" />
          </Fact>
        )}
        {Object.keys(job.tags ?? {}).length > 0 && (
          <Fact name="Tags">
            {Object.entries(job.tags ?? {}).map(([key, value]) => (
              <Link key={key} to="/jobs" query={{ tag: `${key}:${value}` }} class="job-tag">
                {key}: {value}
              </Link>
            ))}
          </Fact>
        )}
        <ScheduleFact job={job} />
        {job.batch_id && (
          <Fact name="Batch">
            <Id id={job.batch_id} tenant={job.tenant} />
          </Fact>
        )}
        {job.retry_of && (
          <Fact name="Retry of">
            <Id id={job.retry_of} tenant={job.tenant} />
          </Fact>
        )}
        {detail.retries.length > 0 && (
          <Fact name="Retried as">
            {detail.retries.map((each) => (
              <Id key={each} id={each} tenant={job.tenant} />
            ))}
          </Fact>
        )}
      </Facts>
    </Panel>
  );
}

// The parts, behind tabs

/** The default tab: output, input, text or log. It does not change while the tabs are hovered or focused. */
function useDefaultTab(hasText: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const shown = useRef("");
  return {
    box,
    of: (job: Job): string => {
      const isInUse = box.current?.matches(":hover, :focus-within") ?? false;
      if (!isInUse || !shown.current)
        shown.current = job.outcome === "succeeded" ? "output" : job.outcome ? "input" : hasText ? "text" : "log";
      return shown.current;
    },
  };
}

interface PartsProps {
  detail: JobDetail;
  job: Job;
  eventLog: EventLog;
  emitted: Signal<EmittedText>;
  reload: () => void;
}

function Parts({ detail, job, eventLog, emitted, reload }: PartsProps) {
  const hasText = useComputed(() => emitted.value.text !== "").value;
  const first = useDefaultTab(hasText);
  const counts: Record<string, number> = {
    log: eventLog.events.filter((event) => event.type === "log").length,
    events: job.events,
    attempts: detail.attempts.length,
    deliveries: detail.deliveries.length,
    files: detail.files.length,
    provider: detail.predictions.length,
  };
  const names = ["input", "output", "text", "log", "events", "attempts", "deliveries", "files", "provider"];
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
        {chosen === "output" && <Output detail={detail} job={job} />}
        {chosen === "text" && <Text emitted={emitted} hasText={hasText} isOver={job.outcome !== null} />}
        {chosen === "log" && <Log eventLog={eventLog} isOver={job.outcome !== null} />}
        {chosen === "events" && <AllEvents eventLog={eventLog} />}
        {chosen === "attempts" && <Attempts detail={detail} />}
        {chosen === "deliveries" && <Deliveries detail={detail} reload={reload} />}
        {chosen === "files" && <Files files={detail.files} />}
        {chosen === "provider" && <Predictions detail={detail} />}
      </div>
    </div>
  );
}

function Output({ detail, job }: { detail: JobDetail; job: Job }) {
  const seen = detail.files.filter((file) => /^(image|video|audio)\//.test(file.content_type) && file.download);
  const given = JSON.stringify(job.input);
  const made = seen.filter((file) => !given.includes(file.id));
  if (job.outcome === null)
    return (
      <Empty title="No output yet.">
        <p>The output is shown when the job ends.</p>
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
      {detail.job.output === null || detail.job.output === undefined ? (
        <p class="soft">The job returned no output.</p>
      ) : (
        <Json value={detail.job.output} label="output" />
      )}
    </>
  );
}

function Text({ emitted, hasText, isOver }: { emitted: Signal<EmittedText>; hasText: boolean; isOver: boolean }) {
  if (hasText || !isOver) return <LiveText emitted={emitted} />;
  return (
    <Empty title="No text.">
      <p>The text that a job emits is shown while it runs. The output is its result.</p>
    </Empty>
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
function Log({ eventLog, isOver }: { eventLog: EventLog; isOver: boolean }) {
  const level = place.value.query.get("level") ?? "debug";
  const least = Math.max(0, LEVELS.indexOf(level));
  const lines = eventLog.events
    .filter((event) => event.type === "log")
    .map(lineOf)
    .filter((line) => !LEVELS.includes(line.level) || LEVELS.indexOf(line.level) >= least);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    const element = box.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [lines.length]);
  const scrolled = () => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  };
  const whole = lines.map((line) => `${line.at} ${line.level} ${line.text}`).join("\n");
  if (eventLog.last === null) return <Skeleton />;
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
        <Earlier eventLog={eventLog} />
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
            {isOver ? "No log lines at this level." : "No log lines at this level yet. New lines appear here."}
          </p>
        )}
      </div>
    </>
  );
}

function Earlier({ eventLog }: { eventLog: EventLog }) {
  const read = eventLog.earlier;
  if (!read) return null;
  return (
    <Button tone="small" onClick={() => attempt(read, "Loaded.")}>
      Load earlier events
    </Button>
  );
}

function AllEvents({ eventLog }: { eventLog: EventLog }) {
  return (
    <>
      <div class="job-tools">
        <span class="soft spaced">Newest first.</span>
        <Earlier eventLog={eventLog} />
        <Copy text={JSON.stringify(eventLog.events, null, 2)} what="events" label="Copy as JSON" />
      </div>
      <Table
        label="Events"
        rows={[...eventLog.events].reverse()}
        keyOf={(event) => String(event.seq)}
        empty={<Empty title="No events yet." />}
        columns={[
          { name: "seq", head: "No.", align: "right", cell: (event) => event.seq },
          { name: "at", head: "Time", cell: (event) => <Instant at={event.at} /> },
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

function Attempts({ detail }: { detail: JobDetail }) {
  return (
    <Table
      label="Attempts"
      rows={detail.attempts}
      keyOf={(each) => String(each.number)}
      empty={
        <Empty title="No attempts yet.">
          <p>Each attempt by a worker is listed here with its result.</p>
        </Empty>
      }
      toneOf={(each) => (each.outcome === "failed" || each.cause ? "bad" : undefined)}
      columns={[
        {
          name: "number",
          head: "Attempt",
          cell: (each) => `${each.number}${each.run > 1 ? ` (run ${each.run})` : ""}`,
        },
        { name: "from", head: "Started", cell: (each) => <Instant at={each.from} /> },
        {
          name: "for",
          head: "Duration",
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
          head: "Result",
          cell: (each) => (each.outcome ? plain(each.outcome) : <Badge tone="main">running</Badge>),
        },
        {
          name: "why",
          head: "Reason",
          cell: (each) => (
            <>
              {[each.cause && plain(each.cause), each.error_code].filter(Boolean).join(": ") || "–"}
              <Traceback text={each.traceback} />
            </>
          ),
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

function Deliveries({ detail, reload }: { detail: JobDetail; reload: () => void }) {
  const resend = (id: string) =>
    attempt(
      () => act("POST", `deliveries/${part(id)}/resend`, undefined, { query: { tenant: detail.job.tenant } }),
      "Delivery resent.",
    ).then(reload);
  return (
    <Table
      label="Deliveries"
      rows={detail.deliveries}
      keyOf={(each) => each.id}
      empty={
        <Empty title="No deliveries.">
          <p>
            Create a <Link to="/webhooks">webhook endpoint</Link>, or submit a job with its own webhook.
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
        { name: "tries", head: "Attempts", align: "right", cell: (each) => each.tries },
        {
          name: "to",
          head: "To",
          cell: (each) =>
            each.endpoint_id ? <Id id={each.endpoint_id} tenant={each.tenant} /> : "the job's own webhook",
        },
        { name: "id", head: "Delivery", cell: (each) => <Id id={each.id} tenant={each.tenant} /> },
        { name: "at", head: "Created", cell: (each) => <Instant at={each.created_at} /> },
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
      <Empty title="No files.">
        <p>Input and output files are shown here with previews.</p>
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

function Predictions({ detail }: { detail: JobDetail }) {
  return (
    <Table
      label="Provider predictions"
      rows={detail.predictions}
      keyOf={(each) => each.id}
      empty={<Empty title="No provider predictions." />}
      columns={[
        { name: "provider", head: "Provider", cell: (each) => each.provider },
        { name: "status", head: "Status", cell: (each) => <Badge>{plain(each.status)}</Badge> },
        {
          name: "prediction",
          head: "Prediction",
          cell: (each) =>
            each.external_id ? (
              <>
                <code>{each.external_id}</code> <Copy text={each.external_id} what="id" />
              </>
            ) : (
              "–"
            ),
        },
        { name: "part", head: "Part", cell: (each) => each.part || "all" },
        { name: "created", head: "Created", cell: (each) => <Instant at={each.created_at} /> },
        { name: "over", head: "Ended", cell: (each) => <Instant at={each.over_at} none="not yet" /> },
      ]}
    />
  );
}
