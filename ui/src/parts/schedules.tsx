// What several pages show of schedules: their state, when they are due, and what they did.

import { get } from "../api";
import { useLoaded } from "../live";
import { Link, part } from "../router";
import type { Fire, Job, ScheduleInfo, Schedules } from "../wire";
import { between, plural, span } from "../words";
import { Badge, Fact, StateBadge, type Tone } from "./basics";
import { timeIn, timingWords } from "./timing";
import "./schedules.css";

/** The tag with the name of the schedule, which its jobs have. */
const TAG = "schedule";
/** A due time that is this long ago was missed. */
const LATE_SECONDS = 60;

const STATES: Record<ScheduleInfo["state"], readonly [Tone, string]> = {
  active: ["good", "Fires at its due times"],
  paused: ["warn", "Does not fire until it is resumed"],
  orphaned: ["bad", "The code of its app no longer declares it; it does not fire"],
  ended: ["quiet", "Has no due time in the future"],
};

export const SCHEDULE_STATES = Object.keys(STATES) as ScheduleInfo["state"][];

export function ScheduleState({ schedule }: { schedule: ScheduleInfo }) {
  const [tone, title] = STATES[schedule.state];
  return (
    <>
      <Badge tone={tone} title={title}>
        {schedule.state}
      </Badge>{" "}
      {schedule.is_overdue && (
        <Badge tone="bad" title="Should have fired more than a minute ago: no process that has its kind fires it">
          overdue
        </Badge>
      )}
    </>
  );
}

/** When a schedule is due: in words, with its cron expression and its zone. */
export function ScheduleTiming({ schedule }: { schedule: ScheduleInfo }) {
  const words = timingWords(schedule);
  const { cron, zone } = schedule;
  return (
    <span class="two-lines">
      {words === cron ? <code>{cron}</code> : words}
      {schedule.at && <small class="soft">{timeIn(zone, schedule.at)}</small>}
      {cron !== null && (
        <small class="soft">
          {words !== cron && <code>{cron}</code>} {zone}
        </small>
      )}
    </span>
  );
}

/** A time as a clock of the zone shows it; the exact time is in its title. */
export function ZonedTime({ at, zone }: { at: string; zone: string }) {
  return (
    <time dateTime={at} title={at}>
      {timeIn(zone, at)}
    </time>
  );
}

const OUTCOMES: Record<Fire["outcome"], Tone> = {
  submitted: "good",
  skipped: "quiet",
  failed: "bad",
  pending: "info",
};

export const FIRE_OUTCOMES = Object.keys(OUTCOMES) as Fire["outcome"][];

export function FireOutcome({ fire }: { fire: Fire }) {
  return (
    <Badge tone={OUTCOMES[fire.outcome]} {...(fire.message ? { title: fire.message } : {})}>
      {fire.outcome}
    </Badge>
  );
}

/** The state of the job of a fire; if it has none, what was done instead. */
export function FireResult({ fire }: { fire: Fire }) {
  if (fire.job_state && fire.job_phase)
    return <StateBadge state={fire.job_state} phase={fire.job_phase} outcome={fire.job_outcome} />;
  return <FireOutcome fire={fire} />;
}

/** Why a fire submitted no job, or not in time. */
export function fireReason(fire: Fire, schedule: ScheduleInfo): string {
  if (fire.outcome === "failed") return `${fire.reason}: ${fire.message}`;
  if (fire.outcome === "skipped") {
    const times = fire.times > 1 ? `${plural(fire.times, "due time")}. ` : "";
    return `${times}${fire.message ?? ""}`;
  }
  if (fire.outcome === "submitted" && !fire.job_state) return "The job has been deleted.";
  const late = (between(fire.due_at, fire.at) ?? 0) - schedule.jitter_seconds;
  return fire.cause === "schedule" && late > LATE_SECONDS ? `Made up for, ${span(late)} late.` : "";
}

/** The schedule that has submitted a job, or a job above it, if it still exists: its name is one of the job's tags. */
export function ScheduleFact({ job }: { job: Pick<Job, "tenant" | "tags"> }) {
  const name = job.tags?.[TAG];
  return name ? <Owner name={name} tenant={job.tenant} /> : null;
}

function Owner({ name, tenant }: { name: string; tenant: string }) {
  const asked = { name, tenant, limit: 1 };
  const found = useLoaded((signal) => get<Schedules>("schedules", asked, signal), [asked], { live: false });
  const [schedule] = found.value?.data ?? [];
  if (!schedule) return null;
  return (
    <Fact name="Schedule">
      <Link to={`/schedules/${part(schedule.id)}`}>{schedule.name}</Link>{" "}
      <span class="soft">{timingWords(schedule)}</span>
    </Fact>
  );
}
