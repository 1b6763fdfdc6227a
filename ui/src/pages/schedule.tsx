// One schedule: what it submits, when it is due next, and what it did at its due times.

import { get } from "../api";
import { useLoaded } from "../live";
import { Ago, Credits, Empty, Fact, Facts, Id, Instant, Page, Panel, Show } from "../parts/basics";
import { Picked } from "../parts/filters";
import { Json } from "../parts/json";
import {
  FIRE_OUTCOMES,
  FireOutcome,
  FireResult,
  fireReason,
  ScheduleState,
  ScheduleTiming,
  ZonedTime,
} from "../parts/schedules";
import { type Column, Pager, Table } from "../parts/table";
import { Link, part, place, setQuery } from "../router";
import type { Fire, Fires, KindInfo, ScheduleDetail } from "../wire";
import { between, span } from "../words";
import { ScheduleActs } from "./schedule-acts";
import { catchUp } from "./schedules";

const FIRES = 20;

export function SchedulePage({ id }: { id: string }) {
  const found = useLoaded((signal) => get<ScheduleDetail>(`schedules/${part(id)}`, {}, signal), [id]);
  const schedule = found.value;
  return (
    <Page
      title={schedule?.name ?? "Schedule"}
      aside={schedule && <ScheduleState schedule={schedule} />}
      acts={schedule && <ScheduleActs schedule={schedule} reload={found.reload} />}
    >
      <Show of={found} lines={10}>
        {(one) => <One schedule={one} />}
      </Show>
    </Page>
  );
}

function One({ schedule }: { schedule: ScheduleDetail }) {
  return (
    <>
      <Warning schedule={schedule} />
      <div class="grid">
        <Definition schedule={schedule} />
        <Upcoming schedule={schedule} />
      </div>
      <FireList schedule={schedule} />
      <Panel title="Input" aside={schedule.due_field && `${schedule.due_field} is set to the due time of each job`}>
        <Json value={schedule.input} label="input" />
      </Panel>
    </>
  );
}

/** Why the schedule does not fire, and what to do about it. */
function Warning({ schedule }: { schedule: ScheduleDetail }) {
  if (schedule.orphaned_at)
    return (
      <div class="trouble" role="alert">
        <p>
          <strong>Orphaned</strong> since <Instant at={schedule.orphaned_at} />: the code of its app no longer declares
          it, and it does not fire.
        </p>
        <p>Declare it again, or delete it.</p>
      </div>
    );
  if (schedule.is_overdue)
    return (
      <div class="trouble" role="alert">
        <p>
          <strong>Overdue:</strong> it should have fired <Ago at={schedule.next_at} />, but no process that has its kind
          fires it.
        </p>
        <p>
          Schedules are fired by <code>millpond up</code>, and by <code>millpond serve</code> with the role{" "}
          <code>services</code>. The catch-up policy decides which of the missed due times are made up for.
        </p>
      </div>
    );
  if (schedule.paused_at)
    return (
      <p class="stale">
        Paused since <Instant at={schedule.paused_at} />. Due times that pass meanwhile are not made up for.
      </p>
    );
  return null;
}

function Definition({ schedule }: { schedule: ScheduleDetail }) {
  const kind = useLoaded((signal) => get<KindInfo>(`kinds/${part(schedule.kind)}`, {}, signal), [schedule.kind], {
    live: false,
  });
  const price = kind.value?.price;
  return (
    <Panel title="Definition">
      <Facts>
        <Fact name="Due">
          <ScheduleTiming schedule={schedule} />
        </Fact>
        <Fact name="Kind">
          <Link to={`/kinds/${part(schedule.kind)}`}>{schedule.kind}</Link>{" "}
          {typeof price === "number" && price > 0 && <Credits value={price} />}
        </Fact>
        <Fact name="Account">
          <Link to={`/credits/${part(schedule.tenant)}/${part(schedule.account)}`}>
            {schedule.tenant}/{schedule.account}
          </Link>
        </Fact>
        <Fact name="Overlap">{OVERLAPS[schedule.overlap]}</Fact>
        <Fact name="Catch-up">{catchUp(schedule)}</Fact>
        <Fact name="Jitter">{schedule.jitter_seconds ? `up to ${span(schedule.jitter_seconds)}` : "none"}</Fact>
        <Fact name="Priority">{schedule.priority ?? "of the kind"}</Fact>
        <Fact name="Expires">
          {schedule.expires_in_seconds ? `${span(schedule.expires_in_seconds)} after submission` : "as the kind"}
        </Fact>
        <Fact name="Declared in">{schedule.source === "code" ? "the code of an app" : "the API"}</Fact>
        <Fact name="Tags">
          {Object.entries({ schedule: schedule.name, ...schedule.tags }).map(([key, value]) => (
            <Link
              key={key}
              to="/jobs"
              query={{ tag: `${key}:${value}`, tenant: schedule.tenant }}
              class="schedules-tag"
              title="Jobs with this tag"
            >
              {key}: {value}
            </Link>
          ))}
        </Fact>
        <Fact name="Created">
          <Ago at={schedule.created_at} />
        </Fact>
        <Fact name="Id">
          <Id id={schedule.id} />
        </Fact>
      </Facts>
    </Panel>
  );
}

const OVERLAPS: Record<ScheduleDetail["overlap"], string> = {
  queue: "queue: jobs may overlap",
  skip: "skip while the previous job has not ended",
  cancel_previous: "cancel the previous job",
};

function Upcoming({ schedule }: { schedule: ScheduleDetail }) {
  const isIdle = schedule.state === "paused" || schedule.state === "orphaned";
  return (
    <Panel title="Next due times" aside={isIdle ? `it is ${schedule.state}, and does not fire` : schedule.zone}>
      {schedule.upcoming.length ? (
        <ol class="schedules-upcoming" aria-label="Next due times">
          {schedule.upcoming.map((at) => (
            <li key={at}>
              <ZonedTime at={at} zone={schedule.zone} />
              <span class="soft">
                <Ago at={at} />
              </span>
            </li>
          ))}
        </ol>
      ) : (
        <Empty title="No due times in the future." />
      )}
    </Panel>
  );
}

// What it did

const OUTCOMES = [["", "Any"], ...FIRE_OUTCOMES.map((outcome) => [outcome, outcome] as const)] as const;

function FireList({ schedule }: { schedule: ScheduleDetail }) {
  const given = place.value.query;
  const asked = { outcome: given.get("outcome"), cursor: given.get("cursor"), limit: FIRES };
  const path = `schedules/${part(schedule.id)}/fires`;
  const found = useLoaded((signal) => get<Fires>(path, asked, signal), [path, asked]);
  return (
    <Panel title="Fires" aside="what it did at its due times, the last one first">
      <div class="filter-row schedules-filter">
        <Picked
          label="Outcome"
          value={asked.outcome ?? ""}
          options={OUTCOMES}
          onValue={(outcome) => setQuery({ outcome, cursor: null }, { replace: false })}
        />
      </div>
      <Show of={found}>
        {(page) => (
          <>
            <Table
              label="Fires"
              columns={columnsOf(schedule)}
              rows={page.data}
              keyOf={(fire) => fire.id}
              toneOf={(fire) => (fire.outcome === "failed" || fire.job_outcome === "failed" ? "bad" : undefined)}
              empty={
                asked.outcome || asked.cursor ? (
                  <Empty title="No fires match this filter." />
                ) : (
                  <Empty title="It has not fired yet." />
                )
              }
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

function columnsOf(schedule: ScheduleDetail): readonly Column<Fire>[] {
  return [
    {
      name: "due",
      head: "Due",
      cell: (fire) => (
        <span class="two-lines">
          <ZonedTime at={fire.due_at} zone={schedule.zone} />
          {fire.until && (
            <small class="soft">
              until <ZonedTime at={fire.until} zone={schedule.zone} />
            </small>
          )}
        </span>
      ),
    },
    {
      name: "cause",
      head: "Cause",
      cell: (fire) => <span title={fire.actor ? `By ${fire.actor}` : undefined}>{fire.cause}</span>,
    },
    { name: "outcome", head: "Outcome", cell: (fire) => <FireOutcome fire={fire} /> },
    {
      name: "job",
      head: "Job",
      cell: (fire) =>
        fire.job_id ? (
          <>
            <Id id={fire.job_id} tenant={schedule.tenant} /> {fire.job_state && <FireResult fire={fire} />}
          </>
        ) : (
          <span class="soft">–</span>
        ),
    },
    { name: "duration", head: "Duration", align: "right", cell: (fire) => <Duration fire={fire} /> },
    {
      name: "reason",
      head: "Reason",
      cell: (fire) => fireReason(fire, schedule) || <span class="soft">–</span>,
    },
  ];
}

/** How long the job ran, from its first start to its end. */
function Duration({ fire }: { fire: Fire }) {
  const seconds = between(fire.job_started_at, fire.job_finished_at);
  return seconds === null ? <span class="soft">–</span> : <span>{span(seconds)}</span>;
}
