// Errands: what is done to many jobs in the background. Each can be watched, and stopped.

import { useEffect } from "preact/hooks";
import { act, get, refusal } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Empty, Fact, Facts, Id, Moment, Page, Panel, Progress, Show, Tile } from "../parts/basics";
import { ask } from "../parts/dialogs";
import { filterWords, whose } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place } from "../router";
import type { Errand, Errands as ErrandsPage } from "../wire";
import { between, bytes, count, number, plain, plural, shortId, span } from "../words";
import "./errands.css";

const TONES: Record<Errand["state"], "good" | "bad" | "info" | "main" | "warn"> = {
  waiting: "info",
  running: "main",
  done: "good",
  aborted: "warn",
  failed: "bad",
};
const LOOK = 700;

export function Errands({ id }: { id?: string }) {
  return id ? <One id={id} /> : <All />;
}

function StateOf({ errand }: { errand: Errand }) {
  const isAborting = errand.is_aborting && isLive(errand);
  return <Badge tone={isAborting ? "warn" : TONES[errand.state]}>{isAborting ? "aborting" : errand.state}</Badge>;
}

function isLive(errand: Errand): boolean {
  return errand.state === "waiting" || errand.state === "running";
}

/** Which jobs it is about, in words. */
function about(errand: Errand): string {
  if (errand.action === "verify") return "the whole ledger";
  if (errand.filter.ids) return plural(errand.filter.ids.length, "selected job");
  return filterWords({ ...errand.filter }) || "all jobs";
}

function seenTo(errand: Errand): number {
  return errand.done + errand.refused;
}

/** How far it has come; null where nobody knows how far it goes. */
function share(errand: Errand): number | null {
  if (errand.state === "done") return 1;
  const whole = errand.estimate ?? (isLive(errand) ? 0 : errand.matched);
  return whole ? Math.min(1, seenTo(errand) / whole) : isLive(errand) ? null : 0;
}

// The list

function All() {
  const cursor = place.value.query.get("cursor");
  const found = useLoaded(
    (signal) => get<ErrandsPage>("errands", { ...whose(), cursor }, signal),
    [whose().tenant, cursor],
  );
  useQuick(found.value?.data.some(isLive) ?? false, found.reload);
  return (
    <Page title="Errands" aside={<span class="soft">What is done to many jobs, in the background.</span>}>
      <Panel>
        <Show of={found}>
          {(page) => (
            <>
              <Table
                label="Errands"
                rows={page.data}
                keyOf={(errand) => errand.id}
                onOpen={(errand) => go(`/errands/${part(errand.id)}`)}
                toneOf={(errand) => (errand.state === "failed" ? "bad" : undefined)}
                empty={
                  <Empty title="No errands yet.">
                    <p>
                      Filter the <Link to="/jobs">jobs</Link>, select some or all that fit, and retry, cancel, refund or
                      export them: that becomes an errand, which is done in the background and can be stopped here.
                    </p>
                  </Empty>
                }
                columns={[
                  { name: "state", head: "State", cell: (errand) => <StateOf errand={errand} /> },
                  {
                    name: "what",
                    head: "What",
                    cell: (errand) => (
                      <>
                        <strong>{errand.action}</strong> <span class="errands-words">{about(errand)}</span>
                      </>
                    ),
                  },
                  {
                    name: "progress",
                    head: "Progress",
                    cell: (errand) => <Bar errand={errand} />,
                  },
                  { name: "done", head: "Done", align: "right", cell: (errand) => number(errand.done) },
                  { name: "refused", head: "Refused", align: "right", cell: (errand) => number(errand.refused) },
                  { name: "actor", head: "By", hide: "medium", cell: (errand) => <Id id={errand.actor} /> },
                  { name: "at", head: "Ordered", cell: (errand) => <Ago at={errand.created_at} /> },
                  { name: "id", head: "Errand", hide: "narrow", cell: (errand) => <Id id={errand.id} /> },
                ]}
              />
              <Pager next={page.next_cursor} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function Bar({ errand }: { errand: Errand }) {
  const value = share(errand);
  if (value === null) return <progress aria-label={`Progress of ${errand.id}`} />;
  return <Progress value={value} label={`Progress of ${errand.id}`} />;
}

/** What moves quickly is looked at more often than the beat, while it is seen. */
function useQuick(isMoving: boolean, reload: () => void): void {
  useEffect(() => {
    if (!isMoving) return;
    const timer = setInterval(() => !document.hidden && reload(), LOOK);
    return () => clearInterval(timer);
  }, [isMoving]);
}

// One

function One({ id }: { id: string }) {
  const found = useLoaded((signal) => get<Errand>(`errands/${part(id)}`, {}, signal), [id]);
  const errand = found.value;
  useQuick(errand ? isLive(errand) : false, found.reload);
  return (
    <Page
      title={errand ? `${errand.action.charAt(0).toUpperCase()}${errand.action.slice(1)}: ${about(errand)}` : "Errand"}
      aside={
        <>
          {errand && <StateOf errand={errand} />} <Id id={id} />
        </>
      }
      acts={errand && isLive(errand) && <Abort errand={errand} reload={found.reload} />}
    >
      <Show of={found}>
        {(shown) => (
          <>
            <Told errand={shown} />
            <Made errand={shown} />
            <Refusals errand={shown} />
            <About errand={shown} />
          </>
        )}
      </Show>
    </Page>
  );
}

function Abort({ errand, reload }: { errand: Errand; reload: () => void }) {
  const because = refusal("operator") ?? (errand.is_aborting ? "It was told to stop." : undefined);
  const abort = () =>
    ask({
      title: `Abort ${errand.action} ${shortId(errand.id)}`,
      text: <p>It stops within a batch. What it has done stays done: {plural(errand.done, "job")} so far.</p>,
      action: "Abort",
      tone: "bad",
      act: async () => {
        await act("POST", `errands/${part(errand.id)}/abort`);
        toast("It was told to stop.");
        reload();
      },
    });
  return (
    <Button tone="bad" because={because} onClick={abort}>
      Abort…
    </Button>
  );
}

const SENTENCES: Record<Errand["state"], string> = {
  waiting: "It waits for a server to take it up.",
  running: "It is being done.",
  done: "It is done.",
  aborted: "It was stopped before its end. What was done stays done.",
  failed: "It failed. What was done before stays done.",
};

function Told({ errand }: { errand: Errand }) {
  const error = (errand.error ?? {}) as { code?: string; message?: string };
  const took = between(errand.started_at, errand.finished_at);
  return (
    <>
      {errand.state === "failed" && (
        <div class="trouble" role="alert">
          <p>
            <strong>{error.message ?? "It failed."}</strong>
          </p>
          {error.code && <code>{error.code}</code>}
        </div>
      )}
      <Panel class="errands-bar">
        <p role="status">
          {SENTENCES[errand.state]} {took !== null && `It took ${span(took)}.`}
        </p>
        <Bar errand={errand} />
        {isLive(errand) && errand.estimate !== null && (
          <p class="soft">
            {number(seenTo(errand))} of about {count(errand.estimate)}
          </p>
        )}
      </Panel>
      {errand.action !== "verify" && (
        <div class="tiles">
          <Tile label="Looked at" value={number(errand.looked)} />
          <Tile label="Fitted" value={number(errand.matched)} />
          <Tile label="Done" value={number(errand.done)} tone={errand.done ? "good" : "quiet"} />
          <Tile label="Refused" value={number(errand.refused)} tone={errand.refused ? "warn" : "quiet"} />
        </div>
      )}
    </>
  );
}

/** What it has made: a file to download, or a verdict. */
function Made({ errand }: { errand: Errand }) {
  const made = errand.result;
  if (!made) return null;
  if (made.violations || typeof made.ok === "boolean")
    return (
      <Panel title="Verdict" aside={<Badge tone={made.ok ? "good" : "bad"}>{made.ok ? "sound" : "unsound"}</Badge>}>
        {made.ok ? (
          <p>Every invariant holds: no credit was made or lost, and every hold belongs to a job.</p>
        ) : (
          <Table
            label="What is wrong"
            rows={made.violations ?? []}
            keyOf={(each) => `${each.invariant} ${each.subject}`}
            toneOf={() => "bad"}
            columns={[
              { name: "invariant", head: "Invariant", cell: (each) => plain(each.invariant) },
              {
                name: "subject",
                head: "Subject",
                cell: (each) => (each.job_id ? <Id id={each.job_id} /> : each.subject),
              },
              { name: "detail", head: "What is wrong", cell: (each) => each.detail },
            ]}
          />
        )}
      </Panel>
    );
  if (!made.name) return null;
  return (
    <Panel title="The file">
      <div class="acts">
        {made.url ? (
          <a class="button main" href={made.url} download={made.name}>
            Download {made.name}
          </a>
        ) : (
          <span class="soft">{made.name} is no longer kept.</span>
        )}
        <span class="soft">
          {typeof made.rows === "number" && `${plural(made.rows, "row")}, `}
          {bytes(made.size ?? 0)}
          {made.expires_at && (
            <>
              , kept until <Moment at={made.expires_at} />
            </>
          )}
        </span>
      </div>
    </Panel>
  );
}

function Refusals({ errand }: { errand: Errand }) {
  if (!errand.refusals.length) return null;
  return (
    <Panel title="Refused">
      <Table
        label="Why jobs were refused"
        rows={errand.refusals}
        keyOf={(each) => `${each.code} ${each.message}`}
        columns={[
          { name: "count", head: "Jobs", align: "right", cell: (each) => number(each.count) },
          { name: "why", head: "Why", cell: (each) => each.message },
          { name: "code", head: "Code", hide: "narrow", cell: (each) => <code>{each.code}</code> },
          { name: "sample", head: "One of them", cell: (each) => <Id id={each.sample} tenant={errand.tenant} /> },
        ]}
      />
    </Panel>
  );
}

function About({ errand }: { errand: Errand }) {
  const { ids, ...filter } = errand.filter;
  const given = Object.entries(errand.arguments).filter(([, value]) => value !== null && value !== "");
  const words = Object.fromEntries(Object.entries(filter).filter(([, value]) => value)) as Record<string, string>;
  return (
    <Panel title="Facts">
      <Facts>
        <Fact name="Which jobs">
          {errand.action === "verify" || ids ? (
            about(errand)
          ) : (
            <Link to="/jobs" query={words} class="errands-words">
              {about(errand)}
            </Link>
          )}
        </Fact>
        {given.map(([name, value]) => (
          <Fact key={name} name={name.charAt(0).toUpperCase() + plain(name).slice(1)}>
            {String(value)}
          </Fact>
        ))}
        <Fact name="Tenant">{errand.tenant ?? "all"}</Fact>
        <Fact name="Ordered by">
          <Id id={errand.actor} />
        </Fact>
        <Fact name="Ordered">
          <Moment at={errand.created_at} />
        </Fact>
        <Fact name="Started">
          <Moment at={errand.started_at} none="not yet" />
        </Fact>
        <Fact name="Ended">
          <Moment at={errand.finished_at} none="not yet" />
        </Fact>
      </Facts>
    </Panel>
  );
}
