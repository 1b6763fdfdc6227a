// The fleet: how many workers there should be, who is there, what each is at, and what one may tell it to do.

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
  Moment,
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
  unapproved: "warn",
  silent: "bad",
  revoked: "quiet",
};
const MEANING: Record<string, string> = {
  idle: "It is heard from and has nothing to do.",
  busy: "It is heard from and works.",
  draining: "It finishes what it has and is given nothing new.",
  unapproved: "It has registered and gets no jobs until an operator approves it.",
  silent: "It has not been heard from. What it holds goes back when its leases run out.",
  revoked: "It was thrown out: its token is refused.",
};
const DEAF =
  "Its heartbeats arrive and it has room, but it does not ask for jobs although some wait on its routes. Its poll loop" +
  " hangs: look at its log, or restart it. What it holds is kept as long as it is heard from.";
const LATELY = 200;

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
    <Page title="Fleet" aside={<span class="soft">who works, at what, and whether that is enough</span>}>
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
        <Tile label="Desired" value={count(board.desired)} note="by what waits and runs" />
        <Tile
          label="Ready"
          value={count(board.ready)}
          note="take jobs, idle or busy"
          tone={board.ready >= board.desired ? "good" : "warn"}
        />
        <Tile
          label="Starting"
          value={count(board.starting)}
          note={board.starting ? "wanted and not there yet" : "none is missing"}
          tone={board.starting ? "warn" : "quiet"}
        />
      </div>
      {deaf.length > 0 && (
        <div class="trouble" role="alert">
          <p>
            <strong>{plural(deaf.length, "worker is", "workers are")} deaf</strong>:{" "}
            {deaf.map((worker) => worker.worker).join(", ")}
          </p>
          <p>{DEAF}</p>
        </div>
      )}
      {unapproved.length > 0 && (
        <p class="stale">{plural(unapproved.length, "worker waits", "workers wait")} for an operator's approval.</p>
      )}
      {board.routes.length > 0 && (
        <Panel title="Routes" aside="queues whose jobs go to the fleet">
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
          toneOf={(worker) => (worker.is_deaf || worker.status === "silent" ? "bad" : undefined)}
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
  { name: "waiting", head: "Jobs ready", align: "right", cell: (route) => count(route.ready) },
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
              <Badge title="It works on the database itself, not over HTTP.">beside the database</Badge>
            </>
          )}
        </>
      ),
    },
    { name: "state", head: "State", cell: (worker) => <State worker={worker} /> },
    {
      name: "heard",
      head: "Heard from",
      cell: (worker) => <Age seconds={worker.heartbeat_age_seconds} />,
    },
    {
      name: "claim",
      head: "Last claim",
      cell: (worker) => <Age seconds={worker.claim_age_seconds} isWrong={worker.is_deaf} />,
    },
    { name: "jobs", head: "At work on", cell: (worker) => <Jobs jobs={worker.jobs} held={worker.held} /> },
    {
      name: "slots",
      head: "Slots",
      align: "right",
      cell: (worker) => (worker.slots === null ? count(worker.held) : `${count(worker.held)} / ${count(worker.slots)}`),
    },
    {
      name: "routes",
      head: "Routes",
      hide: "medium",
      cell: (worker) => <span class="fleet-words">{worker.routes.join(", ") || "–"}</span>,
    },
    {
      name: "address",
      head: "Address",
      hide: "medium",
      cell: (worker) => <span class="fleet-words">{worker.address ?? "–"}</span>,
    },
    {
      name: "about",
      head: "Has",
      hide: "medium",
      cell: (worker) => <Capabilities told={worker.capabilities} most={3} />,
    },
    {
      name: "acts",
      head: <span class="fleet-hidden">What to do</span>,
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
      {worker.is_deaf && (
        <Badge tone="bad" title={DEAF}>
          DEAF
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
  if (!held) return <span class="soft">nothing</span>;
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

/** What a worker said of itself, as a few words each; all of it is on its page. */
function Capabilities({ told, most }: { told: unknown; most: number }) {
  if (told === null || typeof told !== "object") return <span class="soft">–</span>;
  const found = Object.entries(told as Record<string, unknown>).filter(([, value]) => value !== null && value !== "");
  return (
    <span class="fleet-has">
      {found.slice(0, most).map(([name, value]) => (
        <Badge key={name} title={`${name}: ${saying(value)}`}>
          {name} {brief(value)}
        </Badge>
      ))}
      {found.length > most && <span class="soft">+{found.length - most}</span>}
    </span>
  );
}

function saying(value: unknown): string {
  if (Array.isArray(value)) return value.map(saying).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function brief(value: unknown): string {
  const text = saying(value);
  if (text.length <= 28) return text;
  return Array.isArray(value) ? `${value.length}` : `${text.slice(0, 27)}…`;
}

// What one may do with a worker

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

/** What becomes of what it holds, in words. */
function holding(worker: FleetWorker, becomes: string): string {
  if (!worker.held) return "It holds no job now.";
  return `It holds ${plural(worker.held, "job")}: ${becomes}`;
}

const VERBS: Record<string, (props: ActProps) => unknown> = {
  approve: (props) =>
    order(props, "approve", {
      title: `Approve ${props.worker.worker}?`,
      text: `It will be given jobs of ${props.worker.routes.join(", ") || "no route yet"}, and may read the input and the files of those jobs. It was last heard from ${props.worker.address ?? "an unknown address"}.`,
      action: "Approve",
      done: `${props.worker.worker} is approved.`,
    }),
  drain: (props) =>
    order(props, "drain", {
      title: `Drain ${props.worker.worker}?`,
      text: `It is given no more jobs until it is resumed. ${holding(props.worker, "it finishes them.")}`,
      action: "Drain",
      done: `${props.worker.worker} drains.`,
    }),
  resume: (props) =>
    order(props, "resume", {
      title: `Resume ${props.worker.worker}?`,
      text: `It is given jobs again. ${holding(props.worker, "nothing changes for them.")}`,
      action: "Resume",
      done: `${props.worker.worker} is given jobs again.`,
    }),
  revoke: (props) =>
    order(props, "revoke", {
      title: `Revoke ${props.worker.worker}?`,
      text: `It is thrown out at once: its token is refused, and it cannot register under this name until it is approved again. ${holding(props.worker, "they go back and are run by others; what it has done of them is lost.")}`,
      action: "Revoke",
      tone: "bad",
      done: `${props.worker.worker} is revoked.`,
    }),
  rotate: ({ worker, reload }) =>
    ask({
      title: `Give ${worker.worker} a new token?`,
      text: `The new token is told once. ${holding(worker, "it keeps them, as long as it is told the new token in time.")}`,
      action: "Rotate",
      fields: [
        {
          name: "overlap",
          label: "How long the old token stays good",
          value: "10m",
          hint: "Such as 90s, 10m, 1h. Empty: it is refused at once, and what the worker holds goes back when its leases run out.",
        },
      ],
      act: async ({ overlap }) => {
        const made = await act<NewWorkerToken>("POST", `workers/${part(worker.id ?? "")}/rotate`, {
          overlap: overlap?.trim() || null,
        });
        showSecret(
          `The new token of ${worker.worker}`,
          "It is told this once. Hand it to the worker; a worker that registers anew gets its own.",
          made.token,
        );
        reload();
      },
    }),
  assign: ({ worker, routes, reload }) =>
    ask({
      title: `Bind ${worker.worker} to other routes?`,
      text: `From now on it is given jobs of these routes alone. ${holding(worker, "it finishes them, whatever their route.")}`,
      action: "Bind",
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
      label: "Others",
      value: worker.routes.filter((route) => !known.includes(route)).join(" "),
      hint: "Names with a space between them, such as gpu:large.",
    },
  ];
}

/** Which acts make sense for a worker as it stands. */
function fitting(worker: FleetWorker): string[] {
  if (worker.status === "revoked") return ["approve"];
  if (worker.status === "unapproved") return ["approve", "assign", "revoke"];
  const steer = worker.status === "draining" ? ["resume"] : ["drain"];
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
  if (!props.worker.is_fleet) return null;
  const [first] = fitting(props.worker);
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
      {fitting(props.worker).map((verb) => (
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

// Who ran what, when

interface Run {
  job: string;
  tenant: string | null;
  worker: string;
  from: number;
  to: number | null;
  end: string;
}

/** The runs that the audit tells of: a worker was given a job, and later said what became of it. */
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
      get<Audit>("audit", { action: "job.", limit: LATELY, ...query }, signal).then(({ data }) => runsOf(data)),
    [query],
  );
}

function Lanes({ workers }: { workers: readonly FleetWorker[] }) {
  const runs = useRuns({ since: "1h" });
  const names = new Map(workers.map((worker) => [worker.id, worker.worker]));
  return (
    <Panel title="Who ran what, when" aside="the latest of the last hour; workers beside the database do not tell">
      <Show of={runs}>
        {(found) => {
          const known = found.filter((run) => names.has(run.worker));
          if (!known.length) return <Empty title="No worker of the fleet was given a job in the last hour." />;
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
  /** What it still holds: a run of these has not ended. */
  held: ReadonlySet<string>;
}

const ENDS: Record<string, string> = { completed: "good", failed: "bad" };

/** A line for each worker; where it ran several at once, they lie over each other. */
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
              const word = isHeld ? "runs" : run.end || "gone";
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
        <Empty title="There is no such worker now.">
          <p>It has left the fleet, or was silent for so long that it was forgotten. What is known of it:</p>
          <Link to="/audit" query={{ subject: id }}>
            its audit
          </Link>
        </Empty>
      </Page>
    );
  const props = worker && { worker, routes: fleet.value?.routes ?? [], reload: fleet.reload };
  return (
    <Page
      title={worker?.worker ?? id}
      aside={worker && <State worker={worker} />}
      acts={props?.worker.is_fleet && <Acts {...props} />}
    >
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
            <strong>It is deaf.</strong> {DEAF}
          </p>
        </div>
      )}
      <div class="grid">
        <Panel title="Facts">
          <p class="soft fleet-meaning">{MEANING[worker.status]}</p>
          <Facts>
            {worker.id && (
              <Fact name="Id">
                <Id id={worker.id} />
              </Fact>
            )}
            <Fact name="Kind of worker">{worker.is_fleet ? "of the fleet, over HTTP" : "beside the database"}</Fact>
            <Fact name="Routes">{worker.routes.join(", ") || "–"}</Fact>
            <Fact name="Slots">{worker.slots ?? "as it was started"}</Fact>
            <Fact name="Heard from">
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
            <Fact name="Came with the key">{worker.fleet ? <Id id={worker.fleet} /> : "–"}</Fact>
            <Fact name="First lease runs out">
              <Ago at={worker.expires_at} none="–" />
            </Fact>
          </Facts>
        </Panel>
        <Panel title="What it said of itself">
          {worker.capabilities === null ? (
            <p class="soft">Nothing. A worker tells of its GPU and its models with `capabilities` when it registers.</p>
          ) : (
            <>
              <p class="fleet-meaning">
                <Capabilities told={worker.capabilities} most={12} />
              </p>
              <Json value={worker.capabilities} label="capabilities" />
            </>
          )}
        </Panel>
      </div>
      <Panel title="What it holds" aside={plural(worker.held, "job")}>
        <Table
          label="What it holds"
          columns={JOB_COLUMNS}
          rows={worker.jobs}
          keyOf={(job) => job.id}
          onOpen={(job) => go(`/jobs/${part(job.id)}`, { of: job.tenant })}
          empty={<p class="soft">It holds no job.</p>}
        />
        {worker.held > worker.jobs.length && (
          <p class="soft">and {count(worker.held - worker.jobs.length)} more that are not listed here</p>
        )}
      </Panel>
      {worker.id && <Ran worker={worker} id={worker.id} />}
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
  { name: "from", head: "Given", cell: (run) => <Moment at={new Date(run.from).toISOString()} /> },
  {
    name: "length",
    head: "Ran",
    align: "right",
    cell: (run) => span(run.to === null ? null : (run.to - run.from) / 1000),
  },
  {
    name: "end",
    head: "Came to",
    cell: (run) => <Badge tone={(ENDS[run.end] ?? "quiet") as Tone}>{run.end ? plain(run.end) : "no end told"}</Badge>,
  },
];

function Ran({ worker, id }: { worker: FleetWorker; id: string }) {
  const runs = useRuns({ actor: id });
  const held = new Set(worker.jobs.map((job) => job.id));
  return (
    <Panel title="What it ran lately">
      <Show of={runs}>
        {(found) =>
          found.length ? (
            <>
              <LaneChart lanes={[{ name: worker.worker, runs: found, held }]} />
              <Table
                label="What it ran lately"
                columns={RUN_COLUMNS}
                rows={[...found].reverse().slice(0, 20)}
                keyOf={(run) => `${run.job} ${run.from}`}
                onOpen={(run) => go(`/jobs/${part(run.job)}`, run.tenant ? { of: run.tenant } : {})}
              />
            </>
          ) : (
            <p class="soft">It was given no job yet, as far as the audit goes back.</p>
          )
        }
      </Show>
    </Panel>
  );
}

const AUDIT_COLUMNS: readonly Column<AuditEntry>[] = [
  { name: "at", head: "When", cell: (entry) => <Moment at={entry.at} /> },
  { name: "action", head: "What", cell: (entry) => plain(entry.action.replace("worker.", "")) },
  { name: "actor", head: "By", cell: (entry) => <code>{entry.actor}</code> },
  {
    name: "data",
    head: "More",
    hide: "narrow",
    cell: (entry) => <span class="soft">{told(entry.data)}</span>,
  },
];

/** What an entry says beside who, when and what, in words. */
function told(data: unknown): string {
  if (data === null || typeof data !== "object") return "";
  return Object.entries(data)
    .filter(([name]) => name !== "worker")
    .map(([name, value]) => `${plain(name)} ${saying(value)}`)
    .join("; ");
}

function History({ id }: { id: string }) {
  const audit = useLoaded((signal) => get<Audit>("audit", { subject: id, limit: 50 }, signal), [id]);
  return (
    <Panel
      title="What was done with it"
      aside={
        <Link to="/audit" query={{ subject: id }}>
          in the audit
        </Link>
      }
    >
      <Show of={audit}>
        {(found) => (
          <Table
            label="What was done with it"
            columns={AUDIT_COLUMNS}
            rows={found.data}
            keyOf={(entry) => entry.id}
            empty={<p class="soft">Nothing yet.</p>}
          />
        )}
      </Show>
    </Panel>
  );
}

// How to start one

function NoWorkers() {
  return (
    <Empty title="No worker is to be seen.">
      <p>
        Those of the fleet stand here from when they register, those beside the database while they hold a job. Start
        one:
      </p>
      <HowTo />
    </Empty>
  );
}

function HowTo() {
  const url = location.origin;
  return (
    <div class="fleet-how">
      <Step title="Beside the database" text="for kinds that your own code runs">
        millpond worker app.py
      </Step>
      <Step
        title="Anywhere, over HTTP"
        text="for kinds with runs=&quot;fleet&quot;; the secret is a key of scope worker"
      >
        {`millpond keys create --scope worker\nexport MILLPOND_FLEET_SECRET=mp_worker_…\nmillpond worker app.py --url ${url} --route ROUTE`}
      </Step>
      <Step title="ComfyUI" text="beside the ComfyUI of a GPU machine">
        {`pip install 'millpond[comfyui]'\nexport MILLPOND_FLEET_SECRET=mp_worker_…\npython -m millpond.comfyui --url ${url} --comfyui http://127.0.0.1:8188 --route ROUTE`}
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
