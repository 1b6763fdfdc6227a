// The overview: is anything on fire? Everything on it comes from the board, so it moves by itself.

import { useEffect } from "preact/hooks";
import { get, session } from "../api";
import { board, liveness, refresh, useLoaded } from "../live";
import { Badge, Copy, Credits, Empty, Page, Panel, Skeleton, Tile } from "../parts/basics";
import { whose } from "../parts/frame";
import { BusyQueues } from "../parts/queues";
import { Table } from "../parts/table";
import { Trends } from "../parts/trends";
import { type Changes, Link, part } from "../router";
import type { Alarm, Board, JobLines, KindInfo, Kinds } from "../wire";
import { count, number, plural, span } from "../words";
import { FailureTable } from "./failures";
import "./overview.css";

export function Overview() {
  const now = board.value;
  const isByHand = liveness.value === "manual";
  useEffect(() => {
    if (isByHand && !now) refresh();
  }, [isByHand]);
  return <Page title="Overview">{now ? <Whole now={now} /> : <Skeleton lines={8} />}</Page>;
}

function Whole({ now }: { now: Board }) {
  const isOfOne = Boolean(session.value?.tenant ?? whose().tenant); // queues and workers are everybody's
  return (
    <>
      <Verdict now={now} />
      <Tiles now={now} />
      <First now={now} />
      <Trends />
      {!isOfOne && (
        <Panel title="Queues" class="overview-queues">
          <BusyQueues queues={now.queues} />
        </Panel>
      )}
      <div class="grid overview-last">
        <Panel title="Failures of the last hour" aside={<Link to="/failures">All failures</Link>}>
          <FailureTable failures={now.failures} isShort empty={<Empty title="Nothing failed in the last hour." />} />
        </Panel>
        <div>
          {!isOfOne && <Workers now={now} />}
          <Spenders now={now} />
        </div>
      </div>
    </>
  );
}

// In words

type Subject = Alarm["subject"];

const PLACES: Record<Subject["type"], (subject: Subject) => { to: string; query?: Changes }> = {
  queue: ({ id }) => ({ to: "/kinds", query: { queue: id } }),
  worker: ({ id }) => ({ to: `/fleet/${part(id)}` }),
  endpoint: ({ id, tenant }) => ({ to: `/webhooks/${part(id)}`, query: { of: tenant } }),
  failure: ({ id }) => ({ to: `/failures/${part(id)}` }),
  hold: ({ id }) => ({ to: `/kinds/${part(id)}` }),
};

function Verdict({ now }: { now: Board }) {
  const burning = now.alarms.filter((alarm) => alarm.level === "bad").length;
  const wanting = now.alarms.length - burning;
  const tone = burning ? "bad" : wanting ? "warn" : "good";
  return (
    <section class={`overview-verdict ${tone}`} aria-label="Is anything on fire?">
      <p role="status">
        <strong>{inWords(burning, wanting, now.failed_1h)}</strong>{" "}
        <span class="overview-state">{now.alarms.length ? "" : stateOf(now)}</span>
      </p>
      {now.alarms.length > 0 && (
        <ul>
          {now.alarms.map((alarm) => (
            <li key={`${alarm.subject.type} ${alarm.subject.id} ${alarm.text}`}>
              <Badge tone={alarm.level}>{alarm.subject.type}</Badge>{" "}
              <Link {...PLACES[alarm.subject.type](alarm.subject)}>{alarm.text}</Link>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** All is well only where nothing failed lately, however few. */
function inWords(burning: number, wanting: number, failed: number): string {
  const look = `${wanting} ${wanting === 1 ? "wants" : "want"} a look`;
  if (burning) return `${burning} ${burning === 1 ? "thing is" : "things are"} on fire${wanting ? `, ${look}` : ""}.`;
  if (wanting) return `Nothing is on fire; ${look}.`;
  return failed ? "Nothing is on fire." : "All is well.";
}

function stateOf(now: Board): string {
  const line = now.ready
    ? `${plural(now.ready, "job")} in line, the oldest for ${span(now.oldest_wait_seconds)}`
    : "No job waits";
  const lately = `${count(now.succeeded_1h)} succeeded${now.failed_1h ? ` and ${count(now.failed_1h)} failed` : ""} in the last hour`;
  return `${line}; ${count(now.leased)} ${now.leased === 1 ? "runs" : "run"}; ${lately}.`;
}

// In numbers

function Tiles({ now }: { now: Board }) {
  const share = now.ended_1h ? Math.round((100 * now.failed_1h) / now.ended_1h) : 0;
  const later = now.waiting + now.parked;
  const line = now.queues.reduce<(typeof now.queues)[number] | null>(
    (most, queue) => ((queue.oldest_wait_seconds ?? -1) > (most?.oldest_wait_seconds ?? -1) ? queue : most),
    null,
  );
  return (
    <div class="tiles overview-tiles">
      <Tile
        label="Queued"
        value={count(now.ready)}
        note={later ? `and ${count(later)} for later` : "in line"}
        tone={now.ready ? "info" : "quiet"}
        to="/jobs"
        query={{ phase: "ready", ...whose() }}
      />
      <Tile
        label="Running"
        value={now.slots === null ? count(now.leased) : `${count(now.leased)} / ${number(now.slots)}`}
        note={now.slots === null ? "jobs" : "slots of all workers"}
        tone={now.leased ? "main" : "quiet"}
        to="/jobs"
        query={{ phase: "leased", ...whose() }}
      />
      <Tile
        label="Failed, 1 h"
        value={count(now.failed_1h)}
        note={now.failed_1h ? `${share || "< 1"} % of ${count(now.ended_1h)} ended` : `of ${count(now.ended_1h)} ended`}
        tone={now.failed_1h ? "bad" : "good"}
        to="/failures"
        query={{ since: "1h", ...whose() }}
      />
      <Tile
        label="Oldest wait"
        value={span(now.oldest_wait_seconds)}
        note={line?.oldest_wait_seconds == null ? "nobody waits" : `in ${line.queue}`}
        to="/kinds"
        query={line?.oldest_wait_seconds == null ? whose() : { queue: line.queue, ...whose() }}
      />
      <Tile
        label="Webhooks retrying"
        value={count(now.webhooks_failing)}
        note={`${count(now.webhooks_pending)} to be sent`}
        tone={now.webhooks_failing ? "warn" : "quiet"}
        to="/webhooks"
        query={{ tab: "deliveries", ...whose() }}
      />
      <Tile
        label="Credits held"
        value={count(now.held)}
        note="for open jobs"
        to="/credits"
        query={{ tab: "holds", ...whose() }}
      />
      <Tile label="Captured, 1 h" value={count(now.captured_1h)} note="credits" to="/credits" query={whose()} />
    </div>
  );
}

function Workers({ now }: { now: Board }) {
  const { ok, draining, deaf, unapproved } = now.workers;
  const isNone = !(ok + draining + deaf + unapproved);
  return (
    <Panel title="Fleet" aside={<Link to="/fleet">All workers</Link>}>
      {isNone ? (
        <p>
          No machine of the fleet is heard from. Functions of an app run beside the server, or where{" "}
          <code>millpond worker app.py</code> runs.
        </p>
      ) : (
        <p class="overview-workers">
          <Badge tone="good">{plural(ok, "worker")} ok</Badge>
          {draining > 0 && <Badge tone="info">{count(draining)} draining</Badge>}
          {unapproved > 0 && <Badge tone="warn">{count(unapproved)} to be approved</Badge>}
          {deaf > 0 && (
            <Badge tone="bad" title="Heard from, but it claims nothing although jobs wait">
              {count(deaf)} DEAF
            </Badge>
          )}
        </p>
      )}
    </Panel>
  );
}

function Spenders({ now }: { now: Board }) {
  return (
    <Panel title="Tenants by spend, 1 h" aside={<Link to="/credits">Wallets</Link>}>
      <Table
        label="Tenants by spend"
        rows={now.tenants}
        keyOf={(row) => row.tenant}
        empty={<p class="soft">Nobody has spent anything in the last hour.</p>}
        columns={[
          {
            name: "tenant",
            head: "Tenant",
            cell: (row) => (
              <Link to="/jobs" query={{ tenant: row.tenant, since: "1h" }}>
                {row.tenant}
              </Link>
            ),
          },
          { name: "jobs", head: "Jobs", align: "right", cell: (row) => count(row.jobs) },
          { name: "captured", head: "Captured", align: "right", cell: (row) => <Credits value={row.captured} /> },
        ]}
      />
    </Panel>
  );
}

// The first time

/** What to do first, for somebody who has no job yet. */
function First({ now }: { now: Board }) {
  const isQuiet = !(now.ready + now.waiting + now.leased + now.parked + now.delivering + now.ended_1h);
  return isQuiet ? <Beginning /> : null;
}

/** Whether a job of it can be submitted without any input. */
function isEasy(kind: KindInfo): boolean {
  return !JSON.stringify(kind.input_schema).includes('"required"');
}

function Beginning() {
  const asked = { limit: 1, ...whose() };
  const jobs = useLoaded((signal) => get<JobLines>("board/jobs", asked, signal), [asked], { live: false });
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  if (!jobs.value || jobs.value.data.length || jobs.value.next_cursor || !kinds.value) return null;
  const kind = (kinds.value.data.find(isEasy) ?? kinds.value.data[0])?.name;
  const command = `millpond run ${kind ?? "KIND"}`;
  return (
    <Panel title="Nothing has run here yet">
      <ol class="overview-first">
        <li>
          {kind ? (
            <>
              There {kinds.value.data.length === 1 ? "is" : "are"}{" "}
              <Link to="/kinds">{plural(kinds.value.data.length, "kind")} of jobs</Link>. A kind is a function of yours
              with a price.
            </>
          ) : (
            <>
              Declare a kind of job in an app, and start it: <code>millpond up app.py</code>.
            </>
          )}
        </li>
        <li>
          Submit a job: <code>{command}</code> <Copy text={command} what="command" />, or fill in a form in the{" "}
          <Link to={kind ? `/playground/${part(kind)}` : "/playground"}>playground</Link>.
        </li>
        <li>Watch it here: these numbers move by themselves.</li>
      </ol>
    </Panel>
  );
}
