// Being live: one stream from the server for each tab. It rests while the tab is hidden, so that a dashboard that
// nobody looks at costs nothing.

import { effect, signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asking, asProblem, get, type Problem, secrets, session, streamOf } from "./api";
import { place } from "./router";
import type { Board, Event as JobEvent } from "./wire";

export type Liveness = "live" | "paused" | "manual" | "lost" | "off";

const AGAIN = 3_000;
/** A stream that says nothing for so long is lost, though nobody has closed it: a few looks of the server. */
const SILENCE = { looks: 3, atLeast: 5_000 };

/** What the server last told of itself. */
export const board = signal<Board | null>(null);
export const liveness = signal<Liveness>("off");
/** When we last heard from the server. */
export const heardAt = signal<Date | null>(null);
/** Counts the moments at which what is shown should be looked at again. */
export const beat = signal(0);

let source: EventSource | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;
let watch: ReturnType<typeof setInterval> | undefined;
let signAt = 0;

secrets.add(() => {
  board.value = null;
  heardAt.value = null;
});

function heard(): void {
  signAt = performance.now();
  heardAt.value = new Date();
  beat.value += 1;
}

function lose(): void {
  close();
  liveness.value = "lost";
  retry = setTimeout(again, AGAIN);
}

function close(): void {
  clearTimeout(retry);
  clearInterval(watch);
  source?.close();
  source = null;
}

function open(): void {
  close();
  if (!session.value || asking.value) {
    liveness.value = "off";
    return;
  }
  if (session.value.refresh === 0) {
    liveness.value = "manual";
    return;
  }
  if (document.hidden) {
    liveness.value = "paused";
    return;
  }
  const tenant = place.peek().query.get("tenant");
  source = new EventSource(streamOf("board/stream", { tenant }));
  const live = () => {
    liveness.value = "live";
    heard();
  };
  source.addEventListener("board", (event) => {
    board.value = JSON.parse((event as MessageEvent<string>).data) as Board;
    live();
  });
  source.addEventListener("ping", live); // the board is as it was; what pages show may have moved
  source.addEventListener("error", lose);
  const every = session.value.refresh * 1000;
  const silence = Math.max(SILENCE.looks * every, SILENCE.atLeast);
  signAt = performance.now();
  watch = setInterval(() => performance.now() - signAt > silence && lose(), every);
}

/** A stream does not tell why it was refused; a read does, and asks for a key if that is why. */
async function again(): Promise<void> {
  try {
    board.value = await get<Board>("board", { tenant: place.peek().query.get("tenant") });
    open();
    heard();
  } catch {
    lose();
  }
}

/** Look at everything again, now. */
export async function refresh(): Promise<void> {
  board.value = await get<Board>("board", { tenant: place.peek().query.get("tenant") }).catch(() => board.value);
  heard();
}

const tenant = signal<string | null>(null);
effect(() => {
  tenant.value = place.value.query.get("tenant");
});

/** Begin; what it depends on opens the stream anew: who is signed in, whose things are looked at, and the tab. */
export function goLive(): void {
  effect(() => {
    void [session.value, asking.value, tenant.value];
    open();
  });
  document.addEventListener("visibilitychange", () => {
    open();
    if (!document.hidden && liveness.peek() === "manual") return;
    if (!document.hidden) beat.value += 1;
  });
}

// Reading

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  /** Whether the first answer is still to come. */
  isLoading: boolean;
  reload: () => void;
}

/**
 * What a page shows: read when it opens or its dependencies change, and again with every beat. The old value stays
 * until the new one is there; where reading again fails, the value stays and the problem is told beside it.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
  { live = true }: { live?: boolean } = {},
): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; problem: Problem | null; key: string }>({
    value: null,
    problem: null,
    key: "",
  });
  const key = JSON.stringify(dependencies);
  const running = useRef<AbortController | null>(null);

  const run = useCallback(
    (isAgain: boolean) => {
      if (isAgain && running.current) return; // the last look has not come back yet
      running.current?.abort();
      const control = new AbortController();
      running.current = control;
      load(control.signal)
        .then((value) => !control.signal.aborted && setState({ value, problem: null, key }))
        .catch((error) => {
          if (control.signal.aborted) return;
          setState((before) => ({ value: before.key === key ? before.value : null, problem: asProblem(error), key }));
        })
        .finally(() => {
          if (running.current === control) running.current = null;
        });
    },
    [key],
  );

  useEffect(() => {
    run(false);
    return () => {
      running.current?.abort();
      running.current = null;
    };
  }, [run]);

  const count = beat.value;
  const first = useRef(count);
  useEffect(() => {
    if (live && count !== first.current) run(true);
    first.current = count;
  }, [count, live]);

  const isCurrent = state.key === key;
  return {
    value: isCurrent ? state.value : null,
    problem: isCurrent ? state.problem : null,
    isLoading: !isCurrent || (state.value === null && state.problem === null),
    reload: () => run(false),
  };
}

/** The types of a job's events, each the name of its frames in the stream. */
const EVENT_TYPES = [
  ...["submitted", "queued", "started", "requeued", "parked", "answered", "delivering", "retried"],
  ...["succeeded", "failed", "canceled", "expired", "blocked"],
  ...["progress", "stage", "log", "cancel_requested", "prioritized"],
];

/** Follow one job's events from a number on, while the tab is seen and the job has not ended. */
export function useEvents(id: string, tenant: string, after: number | null, told: (event: JobEvent) => void): void {
  const latest = useRef(told);
  latest.current = told;
  const last = useRef(after ?? 0);
  const isReady = after !== null;
  useEffect(() => {
    if (!isReady) return;
    last.current = Math.max(last.current, after ?? 0);
    let stream: EventSource | null = null;
    const start = () => {
      stream?.close();
      stream = null;
      if (document.hidden) return;
      stream = new EventSource(streamOf(`jobs/${id}/stream`, { tenant, last_event_id: last.current }));
      const hear = (event: Event) => {
        const { data, lastEventId } = event as MessageEvent<string>;
        last.current = Number(lastEventId) || last.current;
        latest.current(JSON.parse(data) as JobEvent);
      };
      for (const type of EVENT_TYPES) stream.addEventListener(type, hear);
      stream.addEventListener("end", () => stream?.close());
    };
    start();
    document.addEventListener("visibilitychange", start);
    return () => {
      document.removeEventListener("visibilitychange", start);
      stream?.close();
    };
  }, [id, tenant, isReady]);
}
