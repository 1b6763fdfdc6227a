// Actions on a schedule. Each says what it will do, and asks for confirmation.

import { type Signal, signal } from "@preact/signals";
import { act, freshKey, refusal } from "../api";
import { useLoaded } from "../live";
import { Button } from "../parts/basics";
import { ask } from "../parts/dialogs";
import { timeIn } from "../parts/timing";
import { toast } from "../parts/toasts";
import { go, part } from "../router";
import type { Backfilled, Fire, ScheduleDetail } from "../wire";
import { count, localTime, plural } from "../words";

interface ActsProps {
  schedule: ScheduleDetail;
  reload: () => void;
}

export function ScheduleActs({ schedule, reload }: ActsProps) {
  const props = { schedule, reload };
  const because = refusal("operator");
  const isOfCode = schedule.source === "code";
  const isOrphaned = schedule.state === "orphaned";
  const inCode = isOfCode ? "It is declared in the code of an app. Change it there." : undefined;
  return (
    <>
      <Button tone="main" because={because} onClick={() => runNow(props)}>
        Run now
      </Button>
      {schedule.paused_at ? (
        <Button
          because={because ?? (isOrphaned ? "It is orphaned. Declare it again, or delete it." : undefined)}
          onClick={() => resume(props)}
        >
          Resume
        </Button>
      ) : (
        <Button because={because} onClick={() => pause(props)}>
          Pause
        </Button>
      )}
      <Button because={because} onClick={() => backfill(props)}>
        Backfill
      </Button>
      <Button because={because ?? inCode} onClick={() => go(`/schedules/${part(schedule.id)}/edit`)}>
        Edit
      </Button>
      <Button
        tone="bad"
        because={
          because ??
          (isOfCode && !isOrphaned ? "It is declared in the code of an app. Remove it there, or pause it." : undefined)
        }
        onClick={() => remove(props)}
      >
        Delete
      </Button>
    </>
  );
}

function request<T>(schedule: ScheduleDetail, verb: string, body?: unknown, key?: string): Promise<T> {
  return act<T>("POST", `schedules/${part(schedule.id)}/${verb}`, body, key ? { key } : {});
}

function runNow({ schedule, reload }: ActsProps) {
  const key = freshKey();
  return ask({
    title: `Run ${schedule.name} now?`,
    text: `A job of kind ${schedule.kind} is submitted for ${schedule.tenant}/${schedule.account} and charged as usual, whatever the due times, the state and the overlap policy are.`,
    action: "Run now",
    act: async () => {
      const fire = await request<Fire>(schedule, "run", undefined, key);
      toast(fire.job_id ? `Job ${fire.job_id} submitted.` : "The job is being submitted.");
      reload();
    },
  });
}

function pause({ schedule, reload }: ActsProps) {
  return ask({
    title: `Pause ${schedule.name}?`,
    text: "It does not fire until it is resumed, also if its app restarts. Due times that pass meanwhile are not made up for; a backfill can do that.",
    action: "Pause",
    act: async () => {
      await request(schedule, "pause");
      toast("Schedule paused.");
      reload();
    },
  });
}

function resume({ schedule, reload }: ActsProps) {
  const [next] = schedule.upcoming;
  return ask({
    title: `Resume ${schedule.name}?`,
    text: next ? `It is due next at ${timeIn(schedule.zone, next)}.` : "It has no due time in the future.",
    action: "Resume",
    act: async () => {
      await request(schedule, "resume");
      toast("Schedule resumed.");
      reload();
    },
  });
}

function remove({ schedule }: ActsProps) {
  return ask({
    title: `Delete ${schedule.name}?`,
    text: "It submits no more jobs. The jobs that it has submitted remain, but what it did at its due times is no longer shown. This cannot be undone.",
    action: "Delete",
    tone: "bad",
    act: async () => {
      await act("DELETE", `schedules/${part(schedule.id)}`);
      toast("Schedule deleted.");
      go("/schedules");
    },
  });
}

// Backfill

interface Period {
  since: string;
  until: string;
}

const DAY_MS = 24 * 3_600_000;

/** The period as the API takes it; null if its beginning is not a time yet. */
function bodyOf({ since, until }: Period): { since: string; until?: string } | null {
  const [begin, end] = [new Date(since), new Date(until)];
  if (Number.isNaN(begin.getTime())) return null;
  return { since: begin.toISOString(), ...(Number.isNaN(end.getTime()) ? {} : { until: end.toISOString() }) };
}

function backfill({ schedule, reload }: ActsProps) {
  const first = { since: localTime(new Date(Date.now() - DAY_MS)), until: "" };
  const period = signal<Period>(first);
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return ask({
    title: `Backfill ${schedule.name}?`,
    text: "Submits the jobs of due times in the past that have none: they were missed, skipped or refused. The jobs do not wait for each other.",
    action: "Backfill",
    fields: [
      {
        name: "since",
        label: "From",
        type: "datetime-local",
        value: first.since,
        required: true,
        hint: `In your time zone, ${timeZone}.`,
        onInput: (since) => {
          period.value = { ...period.value, since };
        },
      },
      {
        name: "until",
        label: "To",
        type: "datetime-local",
        hint: "Leave empty for now.",
        onInput: (until) => {
          period.value = { ...period.value, until };
        },
      },
    ],
    after: <BackfillCount schedule={schedule} period={period} />,
    act: async () => {
      const body = bodyOf(period.value);
      const done = await request<Backfilled>(schedule, "backfill", body ?? {});
      toast(done.fires ? `Submitting ${plural(done.fires, "job")}.` : "Every due time of the period has a job.");
      reload();
    },
  });
}

/** How many jobs a backfill of the chosen period would submit. */
function BackfillCount({ schedule, period }: { schedule: ScheduleDetail; period: Signal<Period> }) {
  const body = bodyOf(period.value);
  const found = useLoaded(
    async () => (body ? request<Backfilled>(schedule, "backfill/preview", body) : null),
    [schedule.id, body],
    { live: false },
  );
  return (
    <p class="soft" role="status">
      {body === null ? (
        "Enter the beginning of the period."
      ) : found.problem ? (
        <span class="wrong">
          {found.problem.message} {found.problem.hint}
        </span>
      ) : (
        found.value && <Counted schedule={schedule} body={body} counted={found.value} />
      )}
    </p>
  );
}

interface CountedProps {
  schedule: ScheduleDetail;
  body: { since: string; until?: string };
  counted: Backfilled;
}

function Counted({ schedule, body, counted }: CountedProps) {
  const end = body.until ? timeIn(schedule.zone, body.until) : "now";
  return (
    <>
      From {timeIn(schedule.zone, body.since)} to {end}: {plural(counted.due_times, "due time")}, {count(counted.fires)}{" "}
      without a job.{" "}
      <strong>{counted.fires ? `Submits ${plural(counted.fires, "job")}.` : "Nothing to submit."}</strong>
    </>
  );
}
