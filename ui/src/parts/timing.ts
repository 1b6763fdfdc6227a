// When a schedule is due, in words.

import type { ScheduleInfo } from "../wire";

export type Timing = Pick<ScheduleInfo, "cron" | "every_seconds" | "at" | "zone">;

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const DAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS = [
  ...["January", "February", "March", "April", "May", "June"],
  ...["July", "August", "September", "October", "November", "December"],
];
const SHORTHANDS: Record<string, string> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};
const UNITS = [
  [86_400, "d", "day"],
  [3_600, "h", "hour"],
  [60, "m", "minute"],
  [1, "s", "second"],
] as const;

/** When a schedule is due: "daily at 03:00". An unusual cron expression is returned as it is. */
export function timingWords(timing: Timing): string {
  if (timing.cron !== null) return cronWords(timing.cron) ?? timing.cron;
  if (timing.every_seconds !== null) return everyWords(timing.every_seconds);
  return "once";
}

/** An interval in words: "every 15 minutes". */
export function everyWords(seconds: number): string {
  const [size, , unit] = unitOf(seconds);
  const count = seconds / size;
  return count === 1 ? `every ${unit}` : `every ${count} ${unit}s`;
}

/** A duration as the API reads it: 15m, 1h, 7d. */
export function durationText(seconds: number | null): string {
  if (seconds === null || seconds === 0) return "";
  const [size, letter] = unitOf(seconds);
  return Number.isInteger(seconds) ? `${seconds / size}${letter}` : String(seconds);
}

/** The largest unit of which the duration is a multiple. */
function unitOf(seconds: number): (typeof UNITS)[number] {
  return UNITS.find(([size]) => seconds % size === 0) ?? UNITS[3];
}

/** A usual cron expression in words; null if it is not one of the usual ones. */
export function cronWords(cron: string): string | null {
  const text = SHORTHANDS[cron.trim().toLowerCase()] ?? cron;
  const [minute = "", hour = "", date = "", month = "", day = "", ...more] = text.trim().split(/\s+/);
  if (!day || more.length) return null;
  const days = daysOf(date, month, day);
  const times = timesOf(minute, hour);
  if (!days || !times) return null;
  if (times.isOften) return days === "daily" ? times.words : `${times.words}, ${days}`;
  return `${days} at ${times.words}`;
}

/** On which days: "daily", "on Mondays", "on the 1st of each month"; null if that cannot be said shortly. */
function daysOf(date: string, month: string, day: string): string | null {
  if (date === "*" && month === "*") return day === "*" ? "daily" : weekdaysOf(day);
  if (day !== "*" || !/^\d+$/.test(date)) return date === "L" && month === "*" && day === "*" ? LAST : null;
  if (month === "*") return `on day ${date} of each month`;
  const name = /^\d+$/.test(month) ? MONTHS[Number(month) - 1] : undefined;
  return name ? `on ${date} ${name} of each year` : null;
}

const LAST = "on the last day of each month";

function weekdaysOf(day: string): string | null {
  const range = /^(\w+)-(\w+)$/.exec(day);
  if (range) {
    const [first, last] = [weekday(range[1] ?? ""), weekday(range[2] ?? "")];
    return first && last ? `${first} to ${last}` : null;
  }
  const names = day.split(",").map(weekday);
  if (!names.every(Boolean)) return null;
  return `on ${listed(names.map((name) => `${name}s`))}`;
}

function weekday(text: string): string | null {
  const index = /^[0-7]$/.test(text) ? Number(text) % 7 : DAY_NAMES.indexOf(text.toUpperCase());
  return DAYS[index] ?? null;
}

interface Times {
  words: string;
  /** Whether they are a frequency, such as "every 15 minutes", rather than times of the day. */
  isOften: boolean;
}

function timesOf(minute: string, hour: string): Times | null {
  if (hour === "*") {
    if (minute === "*") return { words: "every minute", isOften: true };
    const step = stepOf(minute, 60);
    if (step) return { words: everyWords(step * 60), isOften: true };
    if (!isNumber(minute)) return null;
    return { words: minute === "0" ? "every hour" : `every hour at :${minute.padStart(2, "0")}`, isOften: true };
  }
  if (!isNumber(minute)) return null;
  const step = stepOf(hour, 24);
  if (step) {
    const words = everyWords(step * 3_600);
    return { words: minute === "0" ? words : `${words} at :${minute.padStart(2, "0")}`, isOften: true };
  }
  const hours = hour.split(",");
  if (!hours.every(isNumber)) return null;
  return { words: listed(hours.map((each) => `${each.padStart(2, "0")}:${minute.padStart(2, "0")}`)), isOften: false };
}

/** The step of `*` and a slash, if it divides the whole: otherwise the last interval is shorter than the others. */
function stepOf(text: string, whole: number): number | null {
  const step = Number(/^\*\/(\d+)$/.exec(text)?.[1] ?? 0);
  return step > 0 && step < whole && whole % step === 0 ? step : null;
}

function isNumber(text: string): boolean {
  return /^\d{1,2}$/.test(text);
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

/** A time as a clock of the zone shows it: "Mon 5 Jan, 09:00 GMT-5". A zone that the browser does not know: UTC. */
export function timeIn(zone: string, at: string | Date): string {
  const time = new Date(at);
  const hasSeconds = time.getUTCSeconds() !== 0;
  const isThisYear = time.getUTCFullYear() === new Date().getUTCFullYear();
  const options: Intl.DateTimeFormatOptions = {
    ...{ weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" },
    ...(isThisYear ? {} : { year: "numeric" }),
    ...(hasSeconds ? { second: "2-digit" } : {}),
  };
  try {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone }).format(time);
  } catch {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" }).format(time);
  }
}
