// The fleet: desired and actual workers, their jobs, and actions on workers.

import type { ComponentChildren } from "preact";
import { act, get, refusal } from "../api";
import { useLoaded } from "../live";
import {
  Ago,
  Badge,
  Button,
  Copy,
  Empty,
  Fact,
  Facts,
  ForAll,
  Id,
  Instant,
  Page,
  Panel,
  Progress,
  Show,
  Tile,
  type Tone,
} from "../parts/basics";
import { ask, showSecret } from "../parts/dialogs";
import type { FieldSpec } from "../parts/forms";
import { Json } from "../parts/json";
import { type Column, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part } from "../router";
import type { Audit, AuditEntry, FleetBoard, FleetJob, FleetRoute, FleetWorker, NewWorkerToken } from "../wire";
import { count, plain, plural, span } from "../words";
import "./fleet.css";

const TONES: Record<string, Tone> = {
  idle: "good",
  busy: "main",
  draining: "warn",
  unready: "bad",
  unapproved: "warn",
  lost: "bad",
  revoked: "quiet",
};
const MEANING: Record<string, string> = {
  idle: "The worker sends heartbeats and has no jobs.",
  busy: "The worker sends heartbeats and runs jobs.",
  draining: "The worker finishes its jobs and receives no new ones.",
  unready: "The worker reports that it cannot run jobs at present. It takes none until it can.",
  unapproved: "The worker has registered and receives no jobs until an operator approves it.",
  lost: "The worker sends no heartbeats. Its jobs return to the queue when their leases expire.",
  revoked: "The worker was revoked; its token is rejected.",
};
const DEAF =
  "The worker sends heartbeats and has free slots, but it does not poll although jobs wait on its routes. Its poll loop" +
  " may hang: check its log or restart it. It keeps its jobs as long as it sends heartbeats.";
const RUNS_MAX = 200;

export function Fleet({ id }: { id?: string }) {
  return (
    <ForAll title="Fleet">
      <Shown {...(id ? { id } : {})} />
    </ForAll>
  );
}

function Shown({ id }: { id?: string }) {
  const fleet = useLoaded((signal) => get<FleetBoard>("board/fleet", {}, signal), []);
  if (id) return <WorkerPage id={id} fleet={fleet} />;
  return (
    <Page title="Fleet" aside={<span class="soft">workers, their jobs and capacity</span>}>
      <Show of={fleet}>{(found) => <Whole board={found} reload={fleet.reload} />}</Show>
    </Page>
  );
}

function because(): string | undefined {
  return refusal("operator", { ofAll: true });
}

// The whole fleet

function Whole({ board, reload }: { board: FleetBoard; reload: () => void }) {
  const deaf = board.workers.filter((worker) => worker.is_deaf);
  const unapproved = board.workers.filter((worker) => worker.status === "unapproved");
  return (
    <>
      <div class="tiles fleet-strip">
        <Tile label="Desired" value={count(board.desired)} note="for waiting and running jobs" />
        <Tile
          label="Ready"
          value={count(board.ready)}
          note="idle or busy"
          tone={board.ready >= board.desired ? "good" : "warn"}
        />
        <Tile
          label="Starting"
          value={count(board.starting)}
          note={board.starting ? "not registered yet" : "none missing"}
          tone={board.starting ? "warn" : "quiet"}
        />
      </div>
      {deaf.length > 0 && (
        <div class="trouble" role="alert">
          <p>
            <strong>{plural(deaf.length, "worker is", "workers are")} not polling</strong>:{" "}
            {deaf.map((worker) => worker.worker).join(", ")}
          </p>
          <p>{DEAF}</p>
        </div>
      )}
      {unapproved.length > 0 && (
        <p class="stale">{plural(unapproved.length, "worker requires", "workers require")} approval by an operator.</p>
      )}
      {board.routes.length > 0 && (
        <Panel title="Routes" aside="queues whose jobs are run by the fleet">
          <Table label="Routes" columns={ROUTE_COLUMNS} rows={board.routes} keyOf={(route) => route.route} />
        </Panel>
      )}
      <Panel title="Workers" aside={board.workers.length ? plural(board.workers.length, "worker") : undefined}>
        <Table
          label="Workers"
          columns={workerColumns(board.routes, reload)}
          rows={board.workers}
          keyOf={(worker) => worker.id ?? worker.worker}
          onOpen={(worker) => go(placeOf(worker))}
          toneOf={(worker) => (worker.is_deaf || worker.status === "lost" ? "bad" : undefined)}
          empty={<NoWorkers />}
        />
      </Panel>
      {board.workers.some((worker) => worker.is_fleet) && <Lanes workers={board.workers} />}
      {board.workers.length > 0 && (
        <details class="panel">
          <summary>How to start another worker</summary>
          <HowTo />
        </details>
      )}
    </>
  );
}

const ROUTE_COLUMNS: readonly Column<FleetRoute>[] = [
  {
    name: "route",
    head: "Route",
    cell: (route) => (
      <>
        <Link to="/kinds" query={{ queue: route.route }}>
          {route.route}
        </Link>{" "}
        {route.paused_at && <Badge tone="warn">paused</Badge>}
      </>
    ),
  },
  { name: "desired", head: "Desired", align: "right", cell: (route) => count(route.desired) },
  { name: "ready", head: "Ready", align: "right", cell: (route) => count(route.idle + route.busy) },
  {
    name: "starting",
    head: "Starting",
    align: "right",
    cell: (route) => count(Math.max(0, route.desired - route.idle - route.busy)),
  },
  { name: "busy", head: "Busy", align: "right", hide: "narrow", cell: (route) => count(route.busy) },
  { name: "draining", head: "Draining", align: "right", hide: "narrow", cell: (route) => count(route.draining) },
  { name: "waiting", head: "Ready jobs", align: "right", cell: (route) => count(route.ready) },
  {
    name: "running",
    head: "Running",
    align: "right",
    cell: (route) => `${count(route.leased)} / ${count(route.slots)}`,
  },
  { name: "oldest", head: "Oldest wait", align: "right", cell: (route) => span(route.oldest_wait_seconds) },
];

function placeOf(worker: FleetWorker): string {
  return `/fleet/${part(worker.id ?? worker.worker)}`;
}

function workerColumns(routes: readonly FleetRoute[], reload: () => void): readonly Column<FleetWorker>[] {
  return [
    {
      name: "worker",
      head: "Worker",
      cell: (worker) => (
        <>
          <Link to={placeOf(worker)}>{worker.worker}</Link>
          {!worker.is_fleet && (
            <>
              {" "}
              <Badge title="Connects to the database directly instead of over HTTP.">direct</Badge>
            </>
          )}
        </>
      ),
    },
    { name: "state", head: "State", cell: (worker) => <State worker={worker} /> },
    {
      name: "heard",
      head: "Last heartbeat",
      cell: (worker) => <Age seconds={worker.heartbeat_age_seconds} />,
    },
    {
      name: "claim",
      head: "Last claim",
      cell: (worker) => <Age seconds={worker.claim_age_seconds} isWrong={worker.is_deaf} />,
    },
    { name: "jobs", head: "Jobs", cell: (worker) => <Jobs jobs={worker.jobs} held={worker.held} /> },
    {
      name: "slots",
      head: "Slots",
      align: "right",
      cell: (worker) => (worker.slots === null ? count(worker.held) : `${count(worker.held)} / ${count(worker.slots)}`),
    },
    {
      name: "queues",
      head: "Queues",
      hide: "medium",
      cell: (worker) => <span class="fleet-words">{worker.queues.join(", ") || "–"}</span>,
    },
    {
      name: "address",
      head: "Address",
      hide: "medium",
      cell: (worker) => <span class="fleet-words">{worker.address ?? "–"}</span>,
    },
    {
      name: "about",
      head: "Capabilities",
      hide: "medium",
      cell: (worker) => <Capabilities capabilities={worker.capabilities} limit={3} />,
    },
    {
      name: "acts",
      head: <span class="fleet-hidden">Actions</span>,
      cell: (worker) => <QuickActs worker={worker} routes={routes} reload={reload} />,
    },
  ];
}

function State({ worker }: { worker: FleetWorker }) {
  return (
    <span class="fleet-state">
      <Badge tone={TONES[worker.status] ?? "quiet"} title={MEANING[worker.status] ?? ""}>
        {worker.status}
      </Badge>
      {worker.unready_reason && <span class="soft">{worker.unready_reason}</span>}
      {worker.is_deaf && (
        <Badge tone="bad" title={DEAF}>
          not polling
        </Badge>
      )}
    </span>
  );
}

function Age({ seconds, isWrong = false }: { seconds: number | null; isWrong?: boolean }) {
  if (seconds === null) return <span class="soft">–</span>;
  return <span class={`numeric ${isWrong ? "wrong" : ""}`}>{span(seconds)} ago</span>;
}

const SHOWN = 3;

function Jobs({ jobs, held }: { jobs: readonly FleetJob[]; held: number }) {
  if (!held) return <span class="soft">none</span>;
  return (
    <ul class="fleet-jobs">
      {jobs.slice(0, SHOWN).map((job) => (
        <li key={job.id}>
          <Link to={`/jobs/${part(job.id)}`} query={{ of: job.tenant }} title={job.id}>
            {job.kind}
          </Link>{" "}
          <span class="soft">{job.stage ?? ""}</span>
          <Progress value={job.progress} label={`Progress of ${job.id}`} />
        </li>
      ))}
      {held > SHOWN && <li class="soft">and {count(held - Math.min(SHOWN, jobs.length))} more</li>}
    </ul>
  );
}

/** What a worker reported about itself, abbreviated; its page shows all of it. */
function Capabilities({ capabilities, limit }: { capabilities: unknown; limit: number }) {
  if (capabilities === null || typeof capabilities !== "object") return <span class="soft">–</span>;
  const found = Object.entries(capabilities as Record<string, unknown>).filter(
    ([, value]) => value !== null && value !== "",
  );
  return (
    <span class="fleet-has">
      {found.slice(0, limit).map(([name, value]) => (
        <Badge key={name} title={`${name}: ${textOf(value)}`}>
          {name} {brief(value)}
        </Badge>
      ))}
      {found.length > limit && <span class="soft">+{found.length - limit}</span>}
    </span>
  );
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(textOf).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function brief(value: unknown): string {
  const text = textOf(value);
  if (text.length <= 28) return text;
  return Array.isArray(value) ? `${value.length}` : `${text.slice(0, 27)}…`;
}

// Actions on a worker

interface ActProps {
  worker: FleetWorker;
  routes: readonly FleetRoute[];
  reload: () => void;
}

function order(
  { worker, reload }: ActProps,
  verb: string,
  question: { title: string; text: ComponentChildren; action: string; tone?: "main" | "bad"; done: string },
) {
  const { done, ...asked } = question;
  return ask({
    ...asked,
    act: async () => {
      await act("POST", `workers/${part(worker.id ?? "")}/${verb}`);
      toast(done);
      reload();
    },
  });
}

/** What happens to the jobs that a worker holds, as a sentence. */
function holding(worker: FleetWorker, effect: string): string {
  if (!worker.held) return "It holds no jobs.";
  return `It holds ${plural(worker.held, "job")}: ${effect}`;
}

const VERBS: Record<string, (props: ActProps) => unknown> = {
  approve: (props) =>
    order(props, "approve", {
      title: `Approve ${props.worker.worker}?`,
      text: `The worker will receive jobs of ${props.worker.routes.join(", ") || "no route yet"} and can read their input and files. Its last address was ${props.worker.address ?? "unknown"}.`,
      action: "Approve",
      done: `Worker ${props.worker.worker} approved.`,
    }),
  drain: (props) =>
    order(props, "drain", {
      title: `Drain ${props.worker.worker}?`,
      text: `The worker receives no new jobs until it is resumed. ${holding(props.worker, "it finishes them.")}`,
      action: "Drain",
      done: `Worker ${props.worker.worker} is draining.`,
    }),
  resume: (props) =>
    order(props, "resume", {
      title: `Resume ${props.worker.worker}?`,
      text: `The worker receives jobs again. ${holding(props.worker, "they are not affected.")}`,
      action: "Resume",
      done: `Worker ${props.worker.worker} resumed.`,
    }),
  revoke: (props) =>
    order(props, "revoke", {
      title: `Revoke ${props.worker.worker}?`,
      text: `The worker's token is rejected immediately, and it cannot register under this name until it is approved again. ${holding(props.worker, "they return to the queue, and their progress is lost.")}`,
      action: "Revoke",
      tone: "bad",
      done: `Worker ${props.worker.worker} revoked.`,
    }),
  rotate: ({ worker, reload }) =>
    ask({
      title: `Rotate the token of ${worker.worker}?`,
      text: `The new token is shown only once. ${holding(worker, "it keeps them if it receives the new token before the overlap ends.")}`,
      action: "Rotate",
      fields: [
        {
          name: "overlap",
          label: "Overlap: how long the old token stays valid",
          value: "10m",
          hint: "For example 90s, 10m or 1h. If empty, the old token is rejected immediately, and the worker's jobs return to the queue when their leases expire.",
        },
      ],
      act: async ({ overlap }) => {
        const made = await act<NewWorkerToken>("POST", `workers/${part(worker.id ?? "")}/rotate`, {
          overlap: overlap?.trim() || null,
        });
        showSecret(
          `New token of ${worker.worker}`,
          "The token is shown only once. Configure the worker with it. A worker that registers again receives its own token.",
          made.token,
        );
        reload();
      },
    }),
  assign: ({ worker, routes, reload }) =>
    ask({
      title: `Assign routes to ${worker.worker}?`,
      text: `The worker receives jobs of these routes only. ${holding(worker, "it finishes them, whatever their route.")}`,
      action: "Assign",
      fields: routeFields(worker, routes),
      act: async (values) => {
        const chosen = Object.keys(values)
          .filter((name) => name.startsWith("route "))
          .map((name) => name.slice(6));
        const others = (values["others"] ?? "").split(/[\s,]+/).filter(Boolean);
        const bound = [...new Set([...chosen, ...others])];
        await act("PUT", `workers/${part(worker.id ?? "")}/routes`, { routes: bound });
        toast(`${worker.worker} serves ${bound.join(", ") || "no route"}.`);
        reload();
      },
    }),
};

const MANY = 12;

function routeFields(worker: FleetWorker, routes: readonly FleetRoute[]): FieldSpec[] {
  const known = [...new Set([...worker.routes, ...routes.map((route) => route.route)])].slice(0, MANY);
  return [
    ...known.map((route) => ({
      name: `route ${route}`,
      label: route,
      type: "check" as const,
      ...(worker.routes.includes(route) ? { value: 1 } : {}),
    })),
    {
      name: "others",
      label: "Other routes",
      value: worker.routes.filter((route) => !known.includes(route)).join(" "),
      hint: "Names separated by spaces, for example gpu:large.",
    },
  ];
}

/** The actions that apply to a worker in its state. */
function actionsFor(worker: FleetWorker): string[] {
  const steer = worker.status === "draining" ? ["resume"] : ["drain"];
  if (!worker.is_fleet) return worker.id ? steer : []; // it has no token and no routes
  if (worker.status === "revoked") return ["approve"];
  if (worker.status === "unapproved") return ["approve", "assign", "revoke"];
  return [...steer, "assign", "rotate", "revoke"];
}

const NAMES: Record<string, string> = {
  approve: "Approve",
  drain: "Drain",
  resume: "Resume",
  assign: "Routes",
  rotate: "Rotate token",
  revoke: "Revoke",
};

function QuickActs(props: ActProps) {
  const [first] = actionsFor(props.worker);
  if (!first) return null;
  return (
    <Button tone="small" because={because()} onClick={() => VERBS[first]?.(props)}>
      {NAMES[first]}
    </Button>
  );
}

function Acts(props: ActProps) {
  return (
    <>
      {actionsFor(props.worker).map((verb) => (
        <Button
          key={verb}
          tone={verb === "revoke" ? "bad" : verb === "approve" ? "main" : "plain"}
          because={because()}
          onClick={() => VERBS[verb]?.(props)}
        >
          {NAMES[verb]}
        </Button>
      ))}
    </>
  );
}

// Recent jobs

interface Run {
  job: string;
  tenant: string | null;
  worker: string;
  from: number;
  to: number | null;
  end: string;
}

/** The runs in the audit, each from the lease of a job to the worker's report about it. */
function runsOf(entries: readonly AuditEntry[]): Run[] {
  const open = new Map<string, Run>();
  const runs: Run[] = [];
  for (const entry of [...entries].reverse()) {
    if (!entry.subject?.startsWith("job_")) continue;
    const key = `${entry.actor} ${entry.subject}`;
    const at = new Date(entry.at).getTime();
    if (entry.action === "job.leased") {
      const run = { job: entry.subject, tenant: entry.tenant, worker: entry.actor, from: at, to: null, end: "" };
      open.set(key, run);
      runs.push(run);
    } else {
      const run = open.get(key);
      if (run) Object.assign(run, { to: at, end: entry.action.replace("job.", "") });
      open.delete(key);
    }
  }
  return runs;
}

function useRuns(query: Record<string, string>) {
  return useLoaded(
    (signal) =>
      get<Audit>("audit", { action: "job.", limit: RUNS_MAX, ...query }, signal).then(({ data }) => runsOf(data)),
    [query],
  );
}

function Lanes({ workers }: { workers: readonly FleetWorker[] }) {
  const runs = useRuns({ since: "1h" });
  const names = new Map(workers.map((worker) => [worker.id, worker.worker]));
  return (
    <Panel title="Recent jobs by worker" aside="last hour; fleet workers only">
      <Show of={runs}>
        {(found) => {
          const known = found.filter((run) => names.has(run.worker));
          if (!known.length) return <Empty title="No fleet worker received a job in the last hour." />;
          const present = workers.filter((worker) => known.some((run) => run.worker === worker.id));
          return (
            <LaneChart
              lanes={present.map((worker) => ({
                name: worker.worker,
                runs: known.filter((run) => run.worker === worker.id),
                held: new Set(worker.jobs.map((job) => job.id)),
              }))}
            />
          );
        }}
      </Show>
    </Panel>
  );
}

interface Lane {
  name: string;
  runs: readonly Run[];
  /** The jobs that the worker still holds; their runs have not ended. */
  held: ReadonlySet<string>;
}

const ENDS: Record<string, string> = { completed: "good", failed: "bad" };

/** A lane for each worker; simultaneous runs overlap. */
function LaneChart({ lanes }: { lanes: readonly Lane[] }) {
  const now = Date.now();
  const from = Math.min(...lanes.flatMap((lane) => lane.runs.map((run) => run.from)));
  const whole = Math.max(1000, now - from);
  return (
    <div class="fleet-lanes">
      {lanes.map((lane) => (
        <div key={lane.name} class="fleet-lane">
          <span class="fleet-lane-name" title={lane.name}>
            {lane.name}
          </span>
          <div class="fleet-lane-bars">
            {lane.runs.map((run) => {
              const isHeld = run.to === null && lane.held.has(run.job);
              const to = run.to ?? (isHeld ? now : run.from);
              const word = isHeld ? "running" : run.end || "unknown";
              return (
                <Link
                  key={`${run.job}${run.from}`}
                  to={`/jobs/${part(run.job)}`}
                  query={run.tenant ? { of: run.tenant } : {}}
                  class="fleet-run-link"
                  label={`${run.job} ${word}, ${span((to - run.from) / 1000)}`}
                  title={`${run.job}\n${word}, ${span((to - run.from) / 1000)}`}
                >
                  <span
                    class={`fleet-run ${isHeld ? "main" : (ENDS[run.end] ?? "warn")}`}
                    style={{
                      left: `${((run.from - from) / whole) * 100}%`,
                      width: `max(4px, ${((to - run.from) / whole) * 100}%)`,
                    }}
                  />
                </Link>
              );
            })}
          </div>
        </div>
      ))}
      <div class="fleet-scale soft" aria-hidden="true">
        <span>{span(whole / 1000)} ago</span>
        <span>now</span>
      </div>
    </div>
  );
}

// One worker

function WorkerPage({ id, fleet }: { id: string; fleet: ReturnType<typeof useLoaded<FleetBoard>> }) {
  const worker = fleet.value?.workers.find((each) => (each.id ?? each.worker) === id);
  if (fleet.value && !worker)
    return (
      <Page title={id}>
        <Empty title="Worker not found.">
          <p>The worker has stopped, or was removed after a long silence. See</p>
          <Link to="/audit" query={{ subject: id }}>
            its audit log
          </Link>
        </Empty>
      </Page>
    );
  const props = worker && { worker, routes: fleet.value?.routes ?? [], reload: fleet.reload };
  return (
    <Page title={worker?.worker ?? id} aside={worker && <State worker={worker} />} acts={props && <Acts {...props} />}>
      <Show of={fleet}>{() => worker && <One worker={worker} />}</Show>
    </Page>
  );
}

function One({ worker }: { worker: FleetWorker }) {
  return (
    <>
      {worker.is_deaf && (
        <div class="trouble" role="alert">
          <p>
            <strong>The worker is not polling.</strong> {DEAF}
          </p>
        </div>
      )}
      <div class="grid">
        <Panel title="Details">
          <p class="soft fleet-meaning">{MEANING[worker.status]}</p>
          <Facts>
            {worker.id && (
              <Fact name="Id">
                <Id id={worker.id} />
              </Fact>
            )}
            <Fact name="Type">{worker.is_fleet ? "fleet (HTTP)" : "direct (database)"}</Fact>
            <Fact name="Version">{worker.version ?? "–"}</Fact>
            <Fact name="Queues">{worker.queues.join(", ") || "–"}</Fact>
            <Fact name="Slots">{worker.slots ?? "as configured"}</Fact>
            <Fact name="Last heartbeat">
              <Age seconds={worker.heartbeat_age_seconds} />
            </Fact>
            <Fact name="Last claim">
              <Age seconds={worker.claim_age_seconds} isWrong={worker.is_deaf} />
            </Fact>
            <Fact name="Address">{worker.address ?? "–"}</Fact>
            <Fact name="Registered">
              <Ago at={worker.registered_at} none="–" />
            </Fact>
            <Fact name="Token">{worker.hint ? <code>{worker.hint}</code> : "–"}</Fact>
            <Fact name="Registered with key">{worker.fleet ? <Id id={worker.fleet} /> : "–"}</Fact>
            <Fact name="Next lease expiry">
              <Ago at={worker.expires_at} none="–" />
            </Fact>
          </Facts>
        </Panel>
        <Panel title="Capabilities">
          {worker.capabilities === null ? (
            <p class="soft">None. A worker can report its GPU and models in `capabilities` when it registers.</p>
          ) : (
            <>
              <p class="fleet-meaning">
                <Capabilities capabilities={worker.capabilities} limit={12} />
              </p>
              <Json value={worker.capabilities} label="capabilities" />
            </>
          )}
        </Panel>
      </div>
      <Panel title="Current jobs" aside={plural(worker.held, "job")}>
        <Table
          label="Current jobs"
          columns={JOB_COLUMNS}
          rows={worker.jobs}
          keyOf={(job) => job.id}
          onOpen={(job) => go(`/jobs/${part(job.id)}`, { of: job.tenant })}
          empty={<p class="soft">The worker holds no jobs.</p>}
        />
        {worker.held > worker.jobs.length && (
          <p class="soft">and {count(worker.held - worker.jobs.length)} more, not listed</p>
        )}
      </Panel>
      {worker.is_fleet && worker.id && <RecentJobs worker={worker} id={worker.id} />}
      {worker.id && <History id={worker.id} />}
    </>
  );
}

const JOB_COLUMNS: readonly Column<FleetJob>[] = [
  { name: "job", head: "Job", cell: (job) => <Id id={job.id} tenant={job.tenant} /> },
  { name: "kind", head: "Kind", cell: (job) => job.kind },
  { name: "tenant", head: "Tenant", cell: (job) => job.tenant },
  { name: "stage", head: "Stage", cell: (job) => (job.stage ? plain(job.stage) : "–") },
  {
    name: "progress",
    head: "Progress",
    cell: (job) => <Progress value={job.progress} label={`Progress of ${job.id}`} />,
  },
  { name: "since", head: "Since", cell: (job) => <Ago at={job.since} /> },
];

const RUN_COLUMNS: readonly Column<Run>[] = [
  { name: "job", head: "Job", cell: (run) => <Id id={run.job} tenant={run.tenant} /> },
  { name: "tenant", head: "Tenant", cell: (run) => run.tenant ?? "–" },
  { name: "from", head: "Leased", cell: (run) => <Instant at={new Date(run.from).toISOString()} /> },
  {
    name: "length",
    head: "Duration",
    align: "right",
    cell: (run) => span(run.to === null ? null : (run.to - run.from) / 1000),
  },
  {
    name: "end",
    head: "Result",
    cell: (run) => <Badge tone={(ENDS[run.end] ?? "quiet") as Tone}>{run.end ? plain(run.end) : "unknown"}</Badge>,
  },
];

function RecentJobs({ worker, id }: { worker: FleetWorker; id: string }) {
  const runs = useRuns({ actor: id });
  const held = new Set(worker.jobs.map((job) => job.id));
  return (
    <Panel title="Recent jobs">
      <Show of={runs}>
        {(found) =>
          found.length ? (
            <>
              <LaneChart lanes={[{ name: worker.worker, runs: found, held }]} />
              <Table
                label="Recent jobs"
                columns={RUN_COLUMNS}
                rows={[...found].reverse().slice(0, 20)}
                keyOf={(run) => `${run.job} ${run.from}`}
                onOpen={(run) => go(`/jobs/${part(run.job)}`, run.tenant ? { of: run.tenant } : {})}
              />
            </>
          ) : (
            <p class="soft">No jobs in the retained audit log.</p>
          )
        }
      </Show>
    </Panel>
  );
}

const AUDIT_COLUMNS: readonly Column<AuditEntry>[] = [
  { name: "at", head: "Time", cell: (entry) => <Instant at={entry.at} /> },
  { name: "action", head: "Action", cell: (entry) => plain(entry.action.replace("worker.", "")) },
  { name: "actor", head: "Actor", cell: (entry) => <code>{entry.actor}</code> },
  {
    name: "data",
    head: "Details",
    hide: "narrow",
    cell: (entry) => <span class="soft">{detailsOf(entry.data)}</span>,
  },
];

/** The details of an audit entry as text. */
function detailsOf(data: unknown): string {
  if (data === null || typeof data !== "object") return "";
  return Object.entries(data)
    .filter(([name]) => name !== "worker")
    .map(([name, value]) => `${plain(name)} ${textOf(value)}`)
    .join("; ");
}

function History({ id }: { id: string }) {
  const audit = useLoaded((signal) => get<Audit>("audit", { subject: id, limit: 50 }, signal), [id]);
  return (
    <Panel
      title="Operator actions"
      aside={
        <Link to="/audit" query={{ subject: id }}>
          Show in audit log
        </Link>
      }
    >
      <Show of={audit}>
        {(found) => (
          <Table
            label="Operator actions"
            columns={AUDIT_COLUMNS}
            rows={found.data}
            keyOf={(entry) => entry.id}
            empty={<p class="soft">None.</p>}
          />
        )}
      </Show>
    </Panel>
  );
}

// How to start one

function NoWorkers() {
  return (
    <Empty title="No workers.">
      <p>No worker is running, so jobs wait. Start one:</p>
      <HowTo />
    </Empty>
  );
}

function HowTo() {
  const url = location.origin;
  return (
    <div class="fleet-how">
      <Step title="Direct" text="for kinds implemented in your app; requires access to the database">
        millpond worker app.py
      </Step>
      <Step title="Fleet (HTTP)" text="for kinds with runs=&quot;fleet&quot;; the secret is a key of scope worker">
        {`millpond keys create --scope worker\nexport MILLPOND_FLEET_SECRET=mp_worker_…\nmillpond worker app.py --url ${url} --route ROUTE`}
      </Step>
      <Step title="ComfyUI" text="on a GPU machine that runs ComfyUI">
        {`pip install 'millpond[comfyui]'\nexport MILLPOND_FLEET_SECRET=mp_worker_…\npython -m millpond.integrations.comfyui --url ${url} --comfyui http://127.0.0.1:8188 --route ROUTE`}
      </Step>
    </div>
  );
}

function Step({ title, text, children }: { title: string; text: string; children: string }) {
  return (
    <div class="fleet-step">
      <p>
        <strong>{title}</strong> <span class="soft">{text}</span> <Copy text={children} what="commands" />
      </p>
      <pre tabIndex={0}>{children}</pre>
    </div>
  );
}
